package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestKeptSamples: a run keeps the samples of earlier steps. It keeps those of its own step only if they are
// complete.
func TestKeptSamples(t *testing.T) {
	name := filepath.Join(t.TempDir(), settings.SamplesFile)
	lines := func(steps ...int) string {
		out := ""
		for _, n := range steps {
			out += fmt.Sprintf("{\"step\":%d,\"prompt\":\"p\",\"text\":\"t\"}\n", n)
		}
		return out
	}
	for _, tc := range []struct {
		file string
		step int
		want string
		last int
	}{
		{lines(3, 3, 6, 6, 9), 6, lines(3, 3, 6, 6), 6}, {lines(3, 3, 6), 6, lines(3, 3), 3}, {lines(3, 3, 4, 4), 3, lines(3, 3), 3},
		{lines(3, 3) + "{\"step\":3", 6, lines(3, 3), 3}, {lines(3), 0, "", 0}, {lines(3, 3, 6) + strings.TrimSuffix(lines(6), "\n"), 6, lines(3, 3), 3},
	} {
		testkit.NoError(t, os.WriteFile(name, []byte(tc.file), 0o644))
		kept, last, err := keepSamples(name, tc.step, 2)
		if err != nil || string(kept) != tc.want || last != tc.last {
			t.Errorf("at step %d of %q: %q, last %d, %v", tc.step, tc.file, kept, last, err)
		}
	}
	if kept, _, err := keepSamples(name+"x", 5, 2); err != nil || kept != nil {
		t.Errorf("without a file: %q, %v", kept, err)
	}
}

// TestSamplesOfBefore: without prompts, a run from step 0 removes the samples file of an earlier
// run in its directory. A resumed run keeps it.
func TestSamplesOfBefore(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, settings.SamplesFile)
	for step, stays := range []bool{false, true} {
		testkit.NoError(t, os.WriteFile(name, []byte("{}\n"), 0o600))
		if _, _, err := OpenSamples(settings.Dir{Path: dir, FS: checkpoint.OS()}, step, 0, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(name); (err == nil) != stays {
			t.Errorf("from step %d: %v, want the file to stay: %t", step, err, stays)
		}
	}
}
