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

// companions are the files of a model directory that go with the weights.
var companions = []string{
	"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
	"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"chat_template.jinja", "chat_template.json",
}

// Companions reads the tokenizer's and the generation's files of the model
// directory dir, those that are there, to be saved beside the trained weights.
func Companions(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range companions {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read model directory: %w", err)
		}
		out[name] = data
	}
	return out, nil
}
