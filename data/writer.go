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

// cacheWriter writes a cache file. Tokens are written to it directly; labels and documents,
// which come after them, wait in files of their own. A commit keeps all of it for another
// process to go on with.
type cacheWriter struct {
	manifest
	name    string
	parts   [3]*part // tokens, labels, documents
	buf     []byte
	private bool   // another process writes the same cache, so this one keeps nothing for later
	kept    bool   // a commit was made
	whole   bool   // the cache has its final name; files with the names of parts are now another process's
	resumed string // a note on what was taken over from an earlier process, "" where nothing was
}

// part is one of the three arrays of a cache file, with the file that it is written to.
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

// partNames are the ends of the names of an unfinished cache's three files.
var partNames = [3]string{".part", ".part-labels", ".part-documents"}

// journalName is the end of the name of a commit's file. newName follows it while that file
// is being written.
const (
	journalName = ".part.json"
	newName     = ".new"
)

// tempName is in the names of files that no other process can go on with.
const tempName = ".tmp-"

// besides are the ends of the names of all files beside a cache's first part.
var besides = []string{partNames[1], partNames[2], journalName, journalName + newName}

// newCacheWriter opens the files beside name, with what an earlier process left in them;
// resume decides what of that is used. close must be called in any case.
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

// lockedFile opens a file and locks it for this process; it is nil where another process has
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
		f.Close() // the file was finished or removed before the lock was taken
	}
}

// namesIn are the paths in a folder whose names begin with start and end with end.
// filepath.Glob would not do, since the folder's own name may hold signs of a pattern.
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

// removeAbandoned removes files that killed processes left: those whose paths begin with
// start and which nobody holds a lock on. Files of the last minute are left alone, since they
// may be about to be locked.
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

// removeBesides removes the files beside the first part of the cache name. The caller must
// hold that part's lock.
func removeBesides(name string) {
	for _, end := range besides {
		os.Remove(name + end)
	}
}

// sweep removes what killed processes have left in the folder of the finished cache name: the
// parts of that cache, and those of other caches whose first part is gone, so that nobody can
// go on with them. What a living process works at is locked, and stays.
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
			continue // a process works at it, or one can go on with it
		}
		if f, err := lockedFile(n + partNames[0]); err == nil && f != nil {
			removeBesides(n)
			os.Remove(f.Name())
			f.Close()
		}
	}
}

// tokens adds tokens to the current document. Where labels is nil they are the tokens
// themselves, if other documents have labels.
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

// endDoc ends the current document, which is on the given line of its file; 0 where it is
// the whole file. The first chosen tokens of a pair are its chosen document.
func (w *cacheWriter) endDoc(line int64, flags uint64, chosen int) error {
	w.Docs++
	w.buf = binary.LittleEndian.AppendUint64(w.buf[:0], uint64(w.Tokens))
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(line)|flags&idFlags<<flagShift)
	if w.Kind == kindPairs {
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(chosen))
	}
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

// flush hands everything written so far to the operating system.
func (w *cacheWriter) flush() error {
	for i, p := range w.parts {
		w.Sums[i] = p.sum
		if err := p.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// finish completes the file and gives it its name. The other parts are removed before that,
// so that a process killed in between leaves none of them beside a complete cache.
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

// close closes the files. It removes what is neither finished nor committed.
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
