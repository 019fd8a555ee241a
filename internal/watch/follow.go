package watch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"

	"mt/base/files"
)

// The limits of what is read: longer lines, and larger files that are sent whole, are
// not ours.
const (
	maxLine = 1 << 20
	maxFile = 16 << 20
)

// sampledFrom is the size in bytes from which the past of a file of lines is not read whole: at a GB/s of reading and
// searching, a viewer waits a quarter of a second.
var sampledFrom int64 = 256 << 20

// lines follows a file of JSON lines that grows, and that a resumed run replaces by a
// shorter one.
type lines struct {
	path string
	at   os.FileInfo // the file when it was last read; nil: it was not there
	off  int64       // behind the last whole line that was read
	most int         // lines that are handed out of what is there at first; 0: all
	keep func(line []byte) bool
}

// read hands the lines that are new to each, without their ends; a line that is not
// whole yet waits. again says that the file is another, or was cut: what was handed out
// before no longer counts. Where the file is first read (or read again) and has more
// than l.most lines, every k-th is handed out, the last one, and those that keep wants.
// Lines that are not JSON are left out. What cannot be read is as if it were not there.
func (l *lines) read(each func(line json.RawMessage)) (again bool) {
	st, err := os.Stat(l.path)
	if err != nil {
		again = l.at != nil && errors.Is(err, fs.ErrNotExist)
		if again {
			l.at, l.off = nil, 0
		}
		return again
	}
	if l.at != nil && (!os.SameFile(l.at, st) || st.Size() < l.off) {
		again, l.off = true, 0
	}
	if l.at != nil && !again && st.Size() == l.off {
		return false
	}
	f, err := files.Open(l.path)
	if err != nil {
		return again
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return again
	}
	l.at = st
	if l.off == 0 && l.most > 0 && st.Size() > sampledFrom {
		l.sample(f, st.Size(), each)
		return again
	}
	// No further than the file is long now: where it grows as fast as it is read, its end
	// would never come.
	now := io.NewSectionReader(f, l.off, st.Size()-l.off)
	stride := 1
	if l.off == 0 && l.most > 0 {
		if n := countLines(now); n > l.most {
			stride = (n + l.most - 1) / l.most
		}
		_, _ = now.Seek(0, io.SeekStart) // never fails
	}
	l.hand(now, stride, each)
	return again
}

// sample hands lines at l.most places spread evenly over a file of so many bytes, and its last whole line.
func (l *lines) sample(f io.ReaderAt, size int64, each func(json.RawMessage)) {
	read := func(from int64, skip bool) (line []byte, end int64) {
		in := bufio.NewReaderSize(io.NewSectionReader(f, from, size-from), 16<<10)
		if skip { // the line that from is in
			_, n, err := readLine(in)
			if err != nil {
				return nil, from
			}
			from += n
		}
		line, n, err := readLine(in)
		if err != nil {
			return nil, from
		}
		return line, from + n
	}
	for i := range l.most {
		from := size / int64(l.most) * int64(i)
		if from < l.off {
			continue // a long line reached over this place
		}
		line, end := read(from, i > 0)
		if c := compact(line); c != nil {
			each(c)
		}
		l.off = max(l.off, end)
	}
	for { // what follows the last place, but for its last line, is left out
		line, end := read(l.off, false)
		if end == l.off {
			return
		}
		l.off = end
		if _, next := read(end, false); next == end {
			if c := compact(line); c != nil {
				each(c)
			}
		}
	}
}

// hand reads whole lines of r and hands every stride-th to each, with the last one and
// those that l.keep wants. It counts in l.off what it read.
func (l *lines) hand(r io.Reader, stride int, each func(json.RawMessage)) {
	in := bufio.NewReaderSize(r, 64<<10)
	var skipped []byte // the line before, if it was not handed out
	give := func(line []byte) {
		if c := compact(line); c != nil {
			each(c)
		}
	}
	for i := 0; ; i++ {
		line, size, err := readLine(in)
		if err != nil {
			break
		}
		l.off += size
		if skipped = nil; i%stride != 0 && (l.keep == nil || !l.keep(line)) {
			skipped = line
			continue
		}
		give(line)
	}
	give(skipped)
}

// readLine returns the next line without its end, and its size with it; of a line longer
// than maxLine it returns nothing. A line without an end is an error.
func readLine(in *bufio.Reader) (line []byte, size int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += int64(len(part))
		if len(line)+len(part) <= maxLine {
			line = append(line, part...)
		}
		switch {
		case err == nil && size <= maxLine:
			return bytes.TrimSpace(line), size, nil
		case err == nil:
			return nil, size, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, size, err
		}
	}
}

// compact is a JSON value on one line, nil where it is none.
func compact(text []byte) json.RawMessage {
	var b bytes.Buffer
	if len(text) == 0 || json.Compact(&b, text) != nil {
		return nil
	}
	return b.Bytes()
}

// countLines is how many ends of lines r has.
func countLines(r io.Reader) (n int) {
	buf := make([]byte, 64<<10)
	for {
		k, err := r.Read(buf)
		n += bytes.Count(buf[:k], []byte{'\n'})
		if err != nil {
			return n
		}
	}
}

// whole follows a small file that is replaced as a whole.
type whole struct {
	path string
	at   os.FileInfo
}

// read returns the file's content where it changed since it was last read.
func (w *whole) read() (content []byte, changed bool) {
	st, err := os.Stat(w.path)
	if err != nil || w.at != nil && os.SameFile(w.at, st) && st.Size() == w.at.Size() && st.ModTime().Equal(w.at.ModTime()) {
		return nil, false
	}
	f, err := files.Open(w.path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	content, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, false
	}
	w.at = st
	return content, len(content) <= maxFile
}
