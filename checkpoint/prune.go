package checkpoint

import (
	"errors"
	"fmt"
)

// Prune removes the checkpoints of the least steps in output until keep are left
// (save_total_limit; 0 or less: all stay), and what unfinished saves have left.
// The checkpoint of the highest step and that of the step current, which the run
// at hand wrote last or goes on from, always stay, and so does the newest that is
// known to be good: one before finite, the last step whose loss and gradients were
// finite. Those made since, in steps that were skipped, do not count and only the
// last of them stays. That of the step best (0: none) stays beside the others; it is
// one of the keep only where it is the newest. What cannot be removed is in the error; nothing else is
// removed in its place. No save into output may be under way.
func Prune(fs FS, output string, keep, finite, current, best int) error {
	checkpoints, leftovers, err := list(output)
	if err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	if err := removeAll(fs, surplus(checkpoints, keep, finite, current, best), leftovers); err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	return nil
}

// Remove removes all checkpoints in output, and what unfinished saves have left.
// The model in output stays. No save into output may be under way.
func Remove(output string) error {
	checkpoints, leftovers, err := list(output)
	if err == nil {
		err = removeAll(OS(), checkpoints, leftovers)
	}
	if err != nil {
		return fmt.Errorf("remove checkpoints: %w", err)
	}
	return nil
}

// removeAll removes leftovers and then checkpoints. Leftovers go first, since one may
// have the name that a checkpoint gets while it is removed. It goes on after an error
// and returns them all.
func removeAll(fs FS, checkpoints []found, leftovers []string) error {
	var errs []error
	for _, path := range leftovers {
		errs = append(errs, opError("remove", path, fs.RemoveAll(path)))
	}
	for _, c := range checkpoints {
		// Under its own name a half removed checkpoint would look damaged.
		aside := c.path + ".tmp-remove"
		if err := fs.Rename(c.path, aside); err != nil {
			errs = append(errs, opError("rename", c.path, err))
			continue
		}
		errs = append(errs, opError("remove", aside, fs.RemoveAll(aside)))
	}
	return errors.Join(errs...)
}

// surplus picks those of checkpoints, which come newest first, that are too many; it
// returns them oldest first.
func surplus(checkpoints []found, keep, finite, current, best int) (out []found) {
	if keep <= 0 {
		return nil
	}
	left, good := 0, -1
	counts := make([]bool, len(checkpoints))
	for i, c := range checkpoints {
		counts[i] = c.counts(finite)
		if counts[i] && (i == 0 || c.step != best) {
			left++
		}
		if counts[i] && c.step < finite && good < 0 {
			good = i
		}
	}
	for i := len(checkpoints) - 1; i > 0; i-- {
		step := checkpoints[i].step
		if step == current || step == best || counts[i] && (left <= keep || i == good) {
			continue
		}
		out = append(out, checkpoints[i])
		if counts[i] {
			left--
		}
	}
	return out
}

// counts tells whether a checkpoint is one of the keep that stay: it is not marked, and
// a finite step came after it or its own step was not skipped. finite is the last step
// that was finite.
func (c found) counts(finite int) bool {
	if NonFinite(c.path) != "" {
		return false
	}
	if c.step < finite {
		return true
	}
	s, err := ReadState(c.path)
	return err != nil || s.NonFinite == 0
}
