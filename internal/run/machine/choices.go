package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"mt/base/files"
	"mt/device/cuda"
)

// timedFiles stores the matrix product algorithms that were the fastest when timed, as a cuda.Store. There is one file
// for each platform, in a folder created on demand. A process that times a product adds the result to the file's
// current content.
type timedFiles struct{ dir string }

// timedFile is the content of one file of timed algorithms. Its platform (GPU and library versions) is also part of
// the file's name.
type timedFile struct {
	cuda.Platform
	Shapes map[string][8]uint64 `json:"shapes"`
}

// mostTimed is the largest size, in bytes, of a file of timed algorithms. One shape of a matrix product takes about
// 200 bytes.
const mostTimed = 4 << 20

// TimedDir returns the folder for the files of timed algorithms. It lies below cacheDir or, if cacheDir is empty,
// below the user's cache folder. "" means that there is no such folder.
func TimedDir(cacheDir string) string {
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		cacheDir = filepath.Join(user, "mt")
	}
	return filepath.Join(cacheDir, "matmul")
}

func (t timedFiles) path(p cuda.Platform) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '-'
	}, p.Device)
	return filepath.Join(t.dir, fmt.Sprintf("%s-driver-%d-cublaslt-%d.json", name, p.Driver, p.CuBLASLt))
}

func (t timedFiles) read(p cuda.Platform) (map[string][8]uint64, error) {
	raw, err := files.Read(t.path(p), mostTimed)
	if err != nil {
		return nil, err
	}
	var f timedFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", t.path(p), err)
	}
	if f.Platform != p {
		return nil, fmt.Errorf("%s is of %s, driver %d, cuBLASLt %d", t.path(p), f.Device, f.Driver, f.CuBLASLt)
	}
	return f.Shapes, nil
}

// Load implements cuda.Store. It returns the algorithms kept for the platform p, by shape. If the
// file cannot be read, it returns a note instead.
func (t timedFiles) Load(p cuda.Platform) (kept map[string][8]uint64, note string) {
	kept, err := t.read(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Sprintf("matmul: timed: %v: the file is passed over, and matrix products are timed again", err)
	}
	return kept, ""
}

// Keep implements cuda.Store. It adds the algorithm for one shape, as the words of cuBLASLt's
// structure, to the platform's file.
func (t timedFiles) Keep(p cuda.Platform, shape string, words [8]uint64) error {
	f := timedFile{Platform: p, Shapes: map[string][8]uint64{}}
	if before, err := t.read(p); err == nil {
		maps.Copy(f.Shapes, before)
	}
	f.Shapes[shape] = words
	raw, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	return replace(t.path(p), append(raw, '\n'))
}

// replace writes a file atomically: readers see the old content or the new one.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
