package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Prune removes the oldest checkpoints in output until keep are left
// (save_total_limit; 0 or less: all stay), and what unfinished saves have left.
// The checkpoint of the highest step and the one written last always stay. No
// save into output may be under way.
func Prune(output string, keep int) error {
	checkpoints, leftovers, err := list(output)
	if err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	var errs []error
	for _, path := range leftovers {
		errs = append(errs, os.RemoveAll(path))
	}
	last, left := lastWritten(checkpoints), len(checkpoints)
	for i, c := range slices.Backward(checkpoints) {
		if keep <= 0 || left <= keep {
			break
		}
		if c.path == last || i == 0 {
			continue
		}
		// Under its own name a half removed checkpoint would look damaged.
		aside := c.path + ".tmp-remove"
		if err := os.Rename(c.path, aside); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.RemoveAll(aside))
		left--
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	return nil
}

// lastWritten is the checkpoint whose manifest is youngest.
func lastWritten(checkpoints []found) string {
	var at time.Time
	var last string
	for _, c := range checkpoints {
		st, err := os.Stat(filepath.Join(c.path, manifestName))
		if err == nil && st.ModTime().After(at) {
			at, last = st.ModTime(), c.path
		}
	}
	return last
}
