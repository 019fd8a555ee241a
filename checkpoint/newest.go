package checkpoint

import "fmt"

// Newest is the newest checkpoint in output by its name, with its state; dir is
// empty where there is none. One that is marked as NonFinite is passed over. Unlike
// Latest it reads no weights: whoever loads them sees whether they are whole.
func Newest(output string) (dir string, state TrainerState, err error) {
	checkpoints, _, err := list(output)
	if err != nil {
		return "", state, fmt.Errorf("look for checkpoints: %w", err)
	}
	for _, c := range checkpoints {
		if state, err := ReadState(c.path); err == nil && NonFinite(c.path) == "" {
			return c.path, state, nil
		}
	}
	return "", state, nil
}
