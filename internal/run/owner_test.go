package run

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"mt/internal/run/open"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestKilledBeforeItsMark: a run that was killed after writing its config.yaml under a temporary
// name, and before renaming it, is still recognised as a run. A file of such a name that no run
// wrote does not mark a run.
func TestKilledBeforeItsMark(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "")
	s.mustTrain(t)
	for name, text := range map[string]string{"ours": read(t, filepath.Join(s.out, settings.ConfigFile)), "another's": "learning_rate: 1\n"} {
		got := s.in(t)
		write(t, filepath.Join(got.out, settings.ConfigFile+".tmp"), text)
		err := got.opens(t)
		if (err == nil) != (name == "ours") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOutputThatCannotBeRead: a run does not write to an output directory that it cannot list,
// because it may hold foreign files.
func TestOutputThatCannotBeRead(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can read every directory")
	}
	s := newScene(t, "")
	testkit.NoError(t, os.MkdirAll(s.out, 0o755))
	testkit.NoError(t, os.Chmod(s.out, 0o300))
	defer func() { _ = os.Chmod(s.out, 0o700) }()
	if err := s.opens(t); err == nil {
		t.Error("a directory that cannot be read is taken for an empty one")
	}
}

// opens opens what the scene's run needs, closes it again, and returns the error.
func (s scene) opens(t *testing.T) error {
	t.Helper()
	in, err := open.Open(s.config(t), settings.Options{Stderr: io.Discard}, open.Asks{Run: true})
	if err != nil {
		return err
	}
	return in.Close()
}
