package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// nonFiniteName is the file that marks a checkpoint after which no step was finite. It
// is in no manifest, so that a checkpoint it marks is still whole.
const nonFiniteName = "nonfinite.json"

// nonFiniteMark is its content.
type nonFiniteMark struct {
	LastFiniteStep int `json:"last_finite_step"` // its update may have broken the weights
	FailedStep     int `json:"failed_step"`      // where the run gave up
}

// MarkNonFinite marks the checkpoints in output from step finite to step last,
// after a run whose last finite step was finite gave up at step failed: no step
// has shown that their weights are good, so Latest passes them over. good is the
// newest of those before, whose weights a step has shown to be good; it is empty
// where there is none.
func MarkNonFinite(fs FS, output string, finite, last, failed int) (good string, marked []string, err error) {
	checkpoints, _, err := list(output)
	if err != nil {
		return "", nil, fmt.Errorf("mark checkpoints: %w", err)
	}
	raw, err := json.Marshal(nonFiniteMark{finite, failed})
	if err != nil {
		return "", nil, err
	}
	for _, c := range checkpoints {
		switch {
		case c.step >= finite && c.step <= last:
			if err := WriteFile(fs, filepath.Join(c.path, nonFiniteName), append(raw, '\n')); err != nil {
				return "", nil, fmt.Errorf("mark checkpoints: %w", err)
			}
			marked = append(marked, c.path)
		case c.step < finite && good == "" && NonFinite(c.path) == "":
			good = c.path
		}
	}
	return good, marked, nil
}

// NonFinite says in a sentence why the checkpoint in dir is marked; nothing
// where it is not.
func NonFinite(dir string) string {
	why, _ := nonFinite(dir, openFile) // Latest reports a mark that cannot be read
	return why
}

// nonFinite is NonFinite, or the error of reading the mark.
func nonFinite(dir string, open opening) (why string, err error) {
	raw, err := readSmall(filepath.Join(dir, nonFiniteName), open)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var m nonFiniteMark
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Sprintf("%s: %v", nonFiniteName, err), nil
	}
	return fmt.Sprintf("the run that made it failed at step %d, and no step after %d was finite: its weights may be broken", m.FailedStep, m.LastFiniteStep), nil
}
