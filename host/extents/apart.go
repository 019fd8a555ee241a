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

// This file is for runs with a separate file for each extent, beside a locked file that names the
// run. An extent's file has a head, followed by the extent's bytes as in memory. A checkpoint can
// hard-link the file, and so keep the last written content without a copy. The content of a linked
// file must not change, so the caller pins a file before it links the file. The next Write of the
// extent then goes to a new file.

// IsApart reports whether each extent has a file of its own. If Options.Heads asked for such files but extents share
// files, why is the reason.
func (e *Files) IsApart() (apart bool, why string) { return e.o.Heads != nil, e.why }

// Pin marks the file of extent i as linked under another name, and returns its path. No Write of the extent may be
// under way. The file has the last written content, but perhaps not on stable storage yet.
func (e *Files) Pin(i int) (path string) {
	e.pinned[i] = true
	return e.paths[e.apart(i)]
}

// apart returns the index in Files.files of extent i's own file. Index 0 is the locked file.
func (e *Files) apart(i int) int { return 1 + i }

// apartPath returns the path of the file of extent i. path is the path of the locked file in the same folder.
func apartPath(path string, i int) string {
	return fmt.Sprintf("%s-%05d.bin", strings.TrimSuffix(path, ".bin"), i)
}

// apartBytes returns the bytes of all extents' own files, with their heads; 0 if extents share files.
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

// layApart returns the places of the chunks of extent i in the extent's own file, where the head comes first.
func (e *Files) layApart(i int) (chunks []place) {
	head := int64(len(e.o.Heads[i]))
	for at := int64(0); at < e.o.Bytes[i]; at += e.o.Chunk {
		chunks = append(chunks, place{file: e.apart(i), at: head + at, bytes: min(e.o.Chunk, e.o.Bytes[i]-at)})
	}
	return chunks
}

// makeApart creates the files of all extents, unless extents share files.
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

// make creates the file of extent i: the head, then zeros. The file must not exist.
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
			_ = f.Remove() // err is reported, not an error of Remove
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
	if e.cached == nil { // the locked file uses O_DIRECT, so this file does too
		if err := f.Direct(); err != nil {
			return fmt.Errorf("open %s: %w", path, bare(err))
		}
	}
	e.files[e.apart(i)] = e.byRing(f)
	return nil
}

// renew replaces the file of extent i by a new one if the file is pinned. The old file keeps the names under which
// checkpoints have linked it. If it has no such name, the system deletes it only when it is closed, so its content can
// be read until the new file is written.
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

// removeApart removes the extent files that a killed process of this run has left. path is the path of the run's locked
// file, in the same folder. If a checkpoint has linked a file, the checkpoint's name of it remains.
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

// foreign returns the error for a file that mt did not write, at a path where mt needs to write a file.
func foreign(path string) error {
	return fmt.Errorf("%s is a file that mt has not written; move it away, or give another directory", path)
}
