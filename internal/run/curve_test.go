package run

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestCurveOfARun: a run saves a picture of its loss curve, also if it is interrupted. A run whose
// picture cannot be written still succeeds.
func TestCurveOfARun(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "max_steps: 4\nval_size: 2\neval_steps: 2\n")
	name := filepath.Join(s.out, settings.CurveFile)
	if _, err := s.interrupted(t, func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(4, false, cancel)} }); err == nil {
		t.Error("the run is not interrupted")
	}
	half, err := os.ReadFile(name)
	testkit.NoError(t, err)
	s.mustTrain(t)
	whole, err := os.ReadFile(name)
	if err != nil || bytes.Equal(half, whole) || !bytes.Contains(whole, []byte("held-out")) {
		t.Errorf("%v; %s", err, whole)
	}
	for _, other := range []string{"", "another picture"} {
		testkit.NoError(t, errors.Join(os.Remove(name), os.WriteFile(name, []byte(other), 0o644)))
		if s.mustTrain(t); string(whole) != read(t, name) {
			t.Error("a run that is done leaves a picture that is not its own")
		}
	}
	s = s.in(t)
	testkit.NoError(t, os.MkdirAll(filepath.Join(s.out, settings.CurveFile, "in the way"), 0o755))
	if out := s.with("overwrite_output_dir: true\n").mustTrain(t); strings.Count(out, settings.CurveFile+" is not drawn: ") != 1 {
		t.Errorf("no note of what is in the way:\n%s", out)
	}
}
