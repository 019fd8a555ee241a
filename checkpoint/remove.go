package checkpoint

import (
	"errors"
	"fmt"
	"os"
)

// Remove removes all checkpoints in output, and what unfinished saves have left.
// The model in output stays. No save into output may be under way.
func Remove(output string) error {
	checkpoints, leftovers, err := list(output)
	if err != nil {
		return fmt.Errorf("remove checkpoints: %w", err)
	}
	var errs []error
	for _, c := range checkpoints {
		// Under its own name a half removed checkpoint would look damaged.
		aside := c.path + ".tmp-remove"
		if err := os.Rename(c.path, aside); err != nil {
			errs = append(errs, err)
			continue
		}
		leftovers = append(leftovers, aside)
	}
	for _, path := range leftovers {
		errs = append(errs, os.RemoveAll(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove checkpoints: %w", err)
	}
	return nil
}
