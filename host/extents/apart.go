package extents

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"mt/base/human"
)

// This file has extents that are files of their own, beside the file that says whose they are and that is locked. A
// file begins with a head, and then has the extent as it is in memory. So others may link it and have what was written last,
// at no cost, as long as nobody writes into it any more: whoever links a file pins it first, and the next Write of its extent
// goes into a file made anew. What has a second name is never written to.

// IsApart says whether extents are files of their own, and if not though Heads were given, why.
func (e *Files) IsApart() (apart bool, why string) { return e.o.Heads != nil, e.why }

// Pin says that the file of extent i, which is returned, will be another's too. No Write of the extent may be under way. The
// file has what was written last, though it may not be safe on the disk.
func (e *Files) Pin(i int) (path string) {
	e.pinned[i] = true
	return e.paths[e.apart(i)]
}

// apart is the place of the file of extent i in files: behind the one that is locked.
func (e *Files) apart(i int) int { return 1 + i }

// apartPath is the path of the file of extent i, beside the file at path.
func apartPath(path string, i int) string {
	return fmt.Sprintf("%s-%05d.bin", strings.TrimSuffix(path, ".bin"), i)
}

// apartBytes is what files of extents take in all.
func (e *Files) apartBytes() (sum int64) {
	if e.o.Heads == nil {
		return 0
	}
	for i, bytes := range e.o.Bytes {
		if bytes > 0 {
			sum += int64(len(e.o.Heads[i])) + bytes
		}
	}
	return sum
}

// layApart gives every chunk of extent i its place in a file of its own.
func (e *Files) layApart(i int) (chunks []place) {
	head := int64(len(e.o.Heads[i]))
	for at := int64(0); at < e.o.Bytes[i]; at += e.o.Chunk {
		chunks = append(chunks, place{file: e.apart(i), at: head + at, bytes: min(e.o.Chunk, e.o.Bytes[i]-at)})
	}
	return chunks
}

// makeApart makes the files of all extents, if they have some.
func (e *Files) makeApart() error {
	if e.o.Heads == nil {
		return nil
	}
	n := len(e.o.Bytes)
	e.pinned = make([]bool, n)
	e.files, e.paths = append(e.files, make([]file, n)...), append(e.paths, make([]string, n)...)
	for i, bytes := range e.o.Bytes {
		e.paths[e.apart(i)] = apartPath(e.paths[0], i)
		if bytes == 0 {
			continue
		}
		if err := e.make(i); err != nil {
			return err
		}
	}
	return nil
}

// make makes the file of extent i, which must not be there: zeros behind the head.
func (e *Files) make(i int) (err error) {
	path, head := e.paths[e.apart(i)], e.o.Heads[i]
	f, err := e.o.open(path, true)
	if errors.Is(err, fs.ErrExist) {
		return foreign(path)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", path, bare(err))
	}
	defer func() {
		if err != nil {
			_ = f.Remove() // err says what went wrong
			_ = f.Close()
		}
	}()
	bytes := int64(len(head)) + e.o.Bytes[i]
	if err := f.Allocate(bytes); err != nil {
		err = fmt.Errorf("take %s for %s: %w", human.Bytes(bytes), path, bare(err))
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			err = fmt.Errorf("%w; free some room there, or let fewer checkpoints stay (save_total_limit): each keeps the states that it was saved with", err)
		}
		return err
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	if e.cached == nil { // as the file beside it
		if err := f.Direct(); err != nil {
			return fmt.Errorf("open %s: %w", path, bare(err))
		}
	}
	e.files[e.apart(i)] = e.byRing(f)
	return nil
}

// renew makes the file of extent i anew if it is pinned. Who has linked the old one keeps it; without that it is gone, and
// what was in it can be read until there is a new one.
func (e *Files) renew(i int) error {
	if e.pinned == nil || !e.pinned[i] {
		return nil
	}
	old, path := e.files[e.apart(i)], e.paths[e.apart(i)]
	if err := old.Remove(); err != nil {
		return fmt.Errorf("remove %s: %w", path, bare(err))
	}
	if err := e.make(i); err != nil {
		return err
	}
	e.pinned[i] = false
	if err := old.Close(); err != nil {
		return fmt.Errorf("close %s: %w", path, bare(err))
	}
	return nil
}

var apartName = regexp.MustCompile(`^-\d{5,}\.bin$`)

// removeApart removes the names of files of extents that a killed process has left beside the file at path, which was this
// run's. What checkpoints have of them stays.
func removeApart(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("look for what is beside %s: %w", path, err)
	}
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), strings.TrimSuffix(filepath.Base(path), ".bin"))
		if !ok || !apartName.MatchString(number) {
			continue
		}
		left := filepath.Join(filepath.Dir(path), entry.Name())
		if err := os.Remove(left); err != nil {
			return fmt.Errorf("remove %s: %w", left, bare(err))
		}
	}
	return nil
}

// foreign is the error for a file that is where ours would be.
func foreign(path string) error {
	return fmt.Errorf("%s is a file that mt has not written; move it away, or give another directory", path)
}
