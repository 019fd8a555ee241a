package data

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cacheWriter writes a cache file. Tokens go to it directly; what follows them
// in it waits in files of its own. A commit makes all of it stay until another
// process goes on.
type cacheWriter struct {
	manifest
	name    string
	parts   [3]*part // tokens, labels, documents
	buf     []byte
	private bool   // another process writes the same cache: nothing is kept
	kept    bool   // there is a commit
	whole   bool   // the cache has its name; what is called by the parts' is another's
	resumed string // a note on what was taken over, "" without
}

// part is one of the three arrays of a cache file.
type part struct {
	f   *os.File
	w   *bufio.Writer
	sum uint32
}

func (p *part) write(b []byte) error {
	p.sum = crc32.Update(p.sum, castagnoli, b)
	_, err := p.w.Write(b)
	return err
}

// partNames are what the files of an unfinished cache end with.
var partNames = [3]string{".part", ".part-labels", ".part-documents"}

// journalName is what a commit's file ends with, and journalName with newName
// until it is whole.
const (
	journalName = ".part.json"
	newName     = ".new"
)

// tempName is in the names of files that are nobody's to go on with.
const tempName = ".tmp-"

// besides are the ends of all that lies beside a cache's first part.
var besides = []string{partNames[1], partNames[2], journalName, journalName + newName}

// newCacheWriter opens the files beside name, with what an earlier process left
// in them: resume says what that is worth. close ends it in any case.
func newCacheWriter(name string, m manifest) (*cacheWriter, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	w := &cacheWriter{manifest: m, name: name}
	removeAbandoned(w.pattern())
	first, err := lockedFile(name + partNames[0])
	if err != nil {
		return nil, err
	}
	w.private = first == nil
	for i := range w.parts {
		f := first
		switch {
		case w.private:
			if f, err = os.CreateTemp(filepath.Dir(name), filepath.Base(w.pattern())+"*"); err == nil && i == 0 {
				err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			} else if err == nil {
				err = os.Remove(f.Name())
			}
		case i > 0:
			f, err = os.OpenFile(name+partNames[i], os.O_RDWR|os.O_CREATE, 0o644)
		}
		if f != nil {
			w.parts[i] = &part{f: f, w: bufio.NewWriterSize(f, 256<<10)}
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *cacheWriter) pattern() string { return w.name + tempName }

// lockedFile opens a file that one process at a time has; nil where another has
// it.
func lockedFile(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, f.Close()
		}
		mine, err := f.Stat()
		there, gone := os.Stat(name)
		if err == nil && gone == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close() // it was finished, or removed, before the lock was taken
	}
}

// namesIn are the paths of what a folder holds whose names begin and end so. A
// pattern would not do: the folder may have a name that is one.
func namesIn(folder, start, end string) []string {
	entries, _ := os.ReadDir(folder) // what cannot be listed is not removed
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), start) && strings.HasSuffix(e.Name(), end) {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names
}

// removeAbandoned removes files that a process left when it was killed: those whose
// paths begin so and on which it holds no lock any more. Files of the last minute
// are left alone, for they may be about to be locked.
func removeAbandoned(start string) {
	for _, name := range namesIn(filepath.Dir(start), filepath.Base(start), "") {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		old := err == nil && time.Since(info.ModTime()) > time.Minute
		if old && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(name)
		}
		f.Close()
	}
}

// removeBesides removes what lies beside the first part of the cache name. Who
// calls it holds that part's lock.
func removeBesides(name string) {
	for _, end := range besides {
		os.Remove(name + end)
	}
}

// sweep removes what processes that were killed have left in the folder of the
// cache name, which is whole: its own parts, and those of others whose first part
// is gone, so that nobody can go on with them. What a living process works at is
// locked, and stays.
func sweep(name string) {
	removeAbandoned(name + tempName)
	var left []string
	for _, end := range append([]string{partNames[0]}, besides...) {
		for _, n := range namesIn(filepath.Dir(name), "", end) {
			left = append(left, strings.TrimSuffix(n, end))
		}
	}
	slices.Sort(left)
	for _, n := range slices.Compact(left) {
		if _, err := os.Lstat(n + partNames[0]); n != name && err == nil {
			continue // somebody's work, or to be gone on with
		}
		if f, err := lockedFile(n + partNames[0]); err == nil && f != nil {
			removeBesides(n)
			os.Remove(f.Name())
			f.Close()
		}
	}
}

// tokens adds tokens to the current document. labels may be nil: then they are
// the tokens, should others have labels.
func (w *cacheWriter) tokens(ids, labels []int32) error {
	w.Tokens += int64(len(ids))
	if labels != nil {
		w.HasLabels = true
	}
	w.buf = appendTokens(w.buf[:0], ids, w.TokenBytes)
	if err := w.parts[0].write(w.buf); err != nil {
		return err
	}
	if w.Kind == kindText {
		return nil
	}
	if labels != nil {
		w.buf = appendTokens(w.buf[:0], labels, w.TokenBytes)
	}
	return w.parts[1].write(w.buf)
}

// endDoc ends the current document, which is on the given line of its file, 0
// for all of it.
func (w *cacheWriter) endDoc(line int64, flags uint64) error {
	w.Docs++
	w.buf = binary.LittleEndian.AppendUint64(w.buf[:0], uint64(w.Tokens))
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(line)|flags&idFlags<<flagShift)
	w.IDSum = crc32.Update(w.IDSum, castagnoli, w.buf)
	binary.LittleEndian.PutUint64(w.buf[8:], uint64(line)|flags<<flagShift)
	return w.parts[2].write(w.buf)
}

func appendTokens(dst []byte, ids []int32, width int64) []byte {
	for _, id := range ids {
		if width == 4 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
			continue
		}
		if id == IgnoreIndex {
			id = ignore16
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
	}
	return dst
}

// flush hands all that was written to the system.
func (w *cacheWriter) flush() error {
	for i, p := range w.parts {
		w.Sums[i] = p.sum
		if err := p.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// finish completes the file and gives it its name. The other parts go first: a
// process that is killed in between leaves none of them beside a whole cache.
func (w *cacheWriter) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	out := w.parts[0].f
	for i, p := range w.parts[1:] {
		if i == 0 && !w.HasLabels {
			w.Sums[1] = 0
			continue
		}
		if _, err := p.f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, p.f); err != nil {
			return err
		}
	}
	text, err := json.Marshal(w.manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	t := binary.LittleEndian.AppendUint64(text, uint64(len(text)))
	t = binary.LittleEndian.AppendUint32(t, crc32.Checksum(text, castagnoli))
	t = binary.LittleEndian.AppendUint32(t, cacheVersion)
	if _, err := out.Write(append(t, cacheMagic...)); err != nil {
		return err
	}
	w.kept = false
	if !w.private {
		removeBesides(w.name)
	}
	err = os.Rename(out.Name(), w.name)
	w.whole = err == nil
	return err
}

// close closes the files, and removes what has neither been finished nor
// committed.
func (w *cacheWriter) close() error {
	var errs []error
	for i, p := range w.parts {
		if p == nil {
			continue
		}
		if !w.whole && !w.kept && (i == 0 || !w.private) {
			os.Remove(p.f.Name())
		}
		errs = append(errs, p.f.Close())
	}
	if !w.whole && !w.kept && !w.private {
		os.Remove(w.name + journalName)
	}
	return errors.Join(errs...)
}
