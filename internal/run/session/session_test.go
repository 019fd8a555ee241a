package session

import (
	"os"
	"path/filepath"
	"testing"

	"mt/actors"
	"mt/internal/config"
	"mt/internal/run/open"
	"mt/internal/run/resolve"
	"mt/internal/run/resume"
	"mt/internal/run/save"
	"mt/internal/run/settings"
)

// TestAfter: a step that is skipped is no update.
func TestAfter(t *testing.T) {
	was := actors.State{Step: 4, AdamStep: 3, NonFinite: 1, Tokens: 50}
	for skipped, want := range map[bool]actors.State{
		false: {Step: 5, AdamStep: 4, Tokens: 60},
		true:  {Step: 5, AdamStep: 3, NonFinite: 2, Tokens: 60},
	} {
		if got := after(was, actors.StepReport{Step: 5, TotalTokens: 60, Skipped: skipped}); got != want {
			t.Errorf("skipped %t: %+v, want %+v", skipped, got, want)
		}
	}
}

// TestSamplesOfBefore: a run without prompts that begins anew removes the samples of the run before, and one that is resumed keeps them.
func TestSamplesOfBefore(t *testing.T) {
	dir := t.TempDir()
	in := &open.Inputs{Config: &config.Config{OutputDir: dir}}
	name := filepath.Join(dir, settings.SamplesFile)
	for step, stays := range []bool{false, true} {
		if err := os.WriteFile(name, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		start := resume.Fresh(in)
		start.From.State.Step = step
		if err := (&session{Weights: &save.Weights{Output: save.NewOutput(&resolve.Resolved{Start: start})}}).openSamples(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(name); (err == nil) != stays {
			t.Errorf("from step %d: %v, want the file to stay: %t", step, err, stays)
		}
	}
}
