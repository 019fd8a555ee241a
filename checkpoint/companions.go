package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// companions are the files of a model directory that go with the weights:
// patterns of their names.
var companions = []string{
	"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
	"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"chat_template.jinja", "chat_template.json", "tekken.json",
	"preprocessor_config.json", "processor_config.json", "configuration_*.py", "modeling_*.py",
	"LICENSE*", "NOTICE*",
}

// maxCompanion bounds one of them; the largest published tokenizers have a
// quarter of it.
const maxCompanion = 256 << 20

// Companions reads the files of the model directory dir that go beside its
// weights, those that are there: the tokenizer's, the generation's, a processor's
// for images, the licence, and Python code that config.json may name, which is
// copied and never run. A Git LFS pointer in place of one is an error.
func Companions(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read model directory: %w", err)
	}
	for _, e := range entries {
		if !isCompanion(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		st, err := os.Stat(path) // in the Hugging Face cache these are links
		if errors.Is(err, os.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if out[e.Name()], err = ReadCompanion(path); err != nil {
			return nil, fmt.Errorf("read model directory: %w", err)
		}
	}
	return out, nil
}

// ReadCompanion reads one file that goes beside weights, config.json among them.
// One that is too long to be that, or a Git LFS pointer, is an error.
func ReadCompanion(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxCompanion {
		return nil, fmt.Errorf("%s: %s long; at most %s is expected", path, size(st.Size()), size(maxCompanion))
	}
	data, err := os.ReadFile(path)
	if err == nil && bytes.HasPrefix(data, []byte("version https://git-lfs")) {
		err = fmt.Errorf("%s: this is a Git LFS pointer, not the file; fetch it with `git lfs pull`", path)
	}
	return data, err
}

func isCompanion(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	for _, pattern := range companions {
		if ok, _ := filepath.Match(pattern, name); ok { // the patterns are well formed
			return true
		}
	}
	return false
}
