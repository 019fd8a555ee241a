package checkpoint

import (
	"errors"
	"fmt"
)

// Prune removes unfinished saves in output, and the oldest checkpoints until keep of them are left (save_total_limit;
// 0 or less: all stay). No save into output may be running. These checkpoints always stay:
//
//   - the newest one
//   - the one of step current, which the run wrote last or resumed from
//   - the one of step best (0: none); it counts toward keep only if it is the newest
//   - the newest good one: older than step finite, the last step with finite loss and gradients
//
// Checkpoints that MarkNonFinite has marked, and those made in skipped steps after finite, do not count toward keep.
// Only the newest of these stays. The error lists what could not be removed; nothing else is removed instead.
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

// Remove removes all checkpoints and unfinished saves in output. The model in output stays. No save into output may
// be running.
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

// removeAll removes leftovers and then checkpoints. Leftovers go first, since one may have the temporary name that
// a checkpoint gets before its removal. It continues after an error and returns all errors.
func removeAll(fs FS, checkpoints []found, leftovers []string) error {
	var errs []error
	for _, path := range leftovers {
		errs = append(errs, opError("remove", path, fs.RemoveAll(path)))
	}
	for _, c := range checkpoints {
		// If a checkpoint were half removed under its own name, it would look damaged.
		aside := c.path + ".tmp-remove"
		if err := fs.Rename(c.path, aside); err != nil {
			errs = append(errs, opError("rename", c.path, err))
			continue
		}
		errs = append(errs, opError("remove", aside, fs.RemoveAll(aside)))
	}
	return errors.Join(errs...)
}

// surplus returns the checkpoints that Prune removes, oldest first. checkpoints are sorted newest first; the other
// parameters are Prune's.
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

// counts reports whether the checkpoint c counts toward Prune's keep. It does not if MarkNonFinite
// has marked it. Otherwise it counts if a step with finite loss and gradients followed, or if its
// own step was not skipped. The parameter finite is the last step with finite loss and gradients.
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
