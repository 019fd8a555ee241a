package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mt/internal/files"
)

// companions are the files of a model directory that go with the weights:
// patterns of their names, which may lie in a folder of the directory.
var companions = []string{
	"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
	"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"chat_template.jinja", "additional_chat_templates/*.jinja", "chat_template.json", "tekken.json",
	"preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json", "configuration_*.py", "modeling_*.py",
	"LICENSE*", "NOTICE*",
}

// maxCompanion bounds the bytes of one of them; the largest published tokenizers take a
// quarter of it.
const maxCompanion = 256 << 20

// Companions reads the files of the model directory dir that go beside its
// weights, those that are there: the tokenizer's, the generation's, a processor's
// for images, the licence, and Python code that config.json may name, which is
// copied and never run. A Git LFS pointer in place of one is an error, and so is a
// link out of the directory.
func Companions(dir string) (map[string][]byte, error) {
	names, err := CompanionNames(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, name := range names {
		if out[name], err = ReadCompanion(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("read model directory: %w", err)
		}
	}
	return out, nil
}

// CompanionNames are the names of the files that Companions reads. It fails where
// one is a link out of the directory, without having read any.
func CompanionNames(dir string) (names []string, err error) {
	found, err := companionsIn(dir)
	if err != nil {
		return nil, fmt.Errorf("read model directory: %w", err)
	}
	for _, name := range found {
		path := filepath.Join(dir, name)
		st, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if folder := filepath.Dir(path); folder != filepath.Clean(dir) {
			err = CheckLink(folder)
		}
		if err = errors.Join(err, CheckLink(path)); err != nil {
			return nil, fmt.Errorf("read model directory: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// companionsIn are the names in dir, and in its folders that patterns name, that are those of companions.
func companionsIn(dir string) (names []string, err error) {
	folders := []string{"."}
	for _, pattern := range companions {
		if folder := filepath.Dir(pattern); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if folder != "." && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name := filepath.Join(folder, e.Name()); isCompanion(name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// CheckLink returns an error where path, a file of a model directory that is to be
// copied, is a link out of that directory: a model may be published, so what is copied
// beside it must come from the model. The files of the Hugging Face cache are links to
// its blobs, which are allowed.
func CheckLink(path string) error {
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Type() != os.ModeSymlink {
		return err
	}
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err == nil {
		to, err = filepath.Abs(to)
	}
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(dir, to)
	if err == nil && filepath.IsLocal(rel) {
		return nil
	}
	if blobs := filepath.Dir(to); filepath.Base(blobs) == "blobs" && strings.HasPrefix(filepath.Base(filepath.Dir(blobs)), "models--") {
		return nil
	}
	return fmt.Errorf("%s: a link to %s, outside of the model directory, and it would be copied beside what is saved; put the file itself there", path, to)
}

// ReadCompanion reads one file that goes beside weights, config.json among them. A file
// that is longer than maxCompanion, or a Git LFS pointer, is an error.
func ReadCompanion(path string) ([]byte, error) {
	data, err := files.Read(path, maxCompanion)
	if err == nil && bytes.HasPrefix(data, []byte(lfsPointer)) {
		err = fmt.Errorf("%s: this is a Git LFS pointer, not the file; fetch it with `git lfs pull`", path)
	}
	return data, err
}

func isCompanion(name string) bool {
	for _, pattern := range companions {
		if ok, _ := filepath.Match(pattern, name); ok { // the patterns are well formed
			return true
		}
	}
	return false
}
