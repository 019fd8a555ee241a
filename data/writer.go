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
	"time"

	"golang.org/x/sys/unix"
)

// cacheWriter writes a cache file. Tokens go to it directly; what follows them
// in it waits in files without a name.
type cacheWriter struct {
	manifest
	name  string
	parts [3]*part // tokens, labels, documents
	buf   []byte
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

// newCacheWriter starts a file beside name. Close ends it in any case.
func newCacheWriter(name string, m manifest) (*cacheWriter, error) {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pattern := filepath.Base(name) + ".tmp-"
	removeAbandoned(filepath.Join(dir, pattern+"*"))
	w := &cacheWriter{manifest: m, name: name}
	for i := range w.parts {
		f, err := os.CreateTemp(dir, pattern+"*")
		if err != nil {
			w.close()
			return nil, err
		}
		w.parts[i] = &part{f: f, w: bufio.NewWriterSize(f, 1<<20)}
		if i == 0 {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		} else {
			err = os.Remove(f.Name())
		}
		if err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

// removeAbandoned removes files that a process left when it was killed: those
// it holds no lock on any more. Files of the last minute are left alone, for
// they may be about to be locked.
func removeAbandoned(pattern string) {
	names, _ := filepath.Glob(pattern) // the only error is that of a bad pattern
	for _, name := range names {
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
	if w.Kind != kindIDs {
		return nil
	}
	if labels != nil {
		w.buf = appendTokens(w.buf[:0], labels, w.TokenBytes)
	}
	return w.parts[1].write(w.buf)
}

// endDoc ends the current document, which is on the given line of its file, 0
// for all of it.
func (w *cacheWriter) endDoc(line int64) error {
	w.Docs++
	w.buf = binary.LittleEndian.AppendUint64(w.buf[:0], uint64(w.Tokens))
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(line))
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

// finish completes the file and gives it its name.
func (w *cacheWriter) finish() error {
	if !w.HasLabels {
		w.parts[1].sum = 0
	}
	for i, p := range w.parts {
		w.Sums[i] = p.sum
		if err := p.w.Flush(); err != nil {
			return err
		}
	}
	out := w.parts[0].f
	for i, p := range w.parts[1:] {
		if i == 0 && !w.HasLabels {
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
	return os.Rename(out.Name(), w.name)
}

// close closes the files, and removes what has not been finished.
func (w *cacheWriter) close() error {
	var errs []error
	for i, p := range w.parts {
		if p == nil {
			continue
		}
		if i == 0 {
			os.Remove(p.f.Name()) // gone when finished
		}
		errs = append(errs, p.f.Close())
	}
	return errors.Join(errs...)
}
