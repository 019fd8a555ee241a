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

// Limits in bytes. Lines and whole files that mt writes are shorter.
const (
	maxLine = 1 << 20
	maxFile = 16 << 20
)

// sampledFrom is a size of metrics.jsonl in bytes. When a viewer opens a larger file, the server reads only a sample
// of its old lines. Reading a file of this size takes a quarter of a second at 1 GB/s.
var sampledFrom int64 = 256 << 20

// lines follows a growing file of JSON lines. A resumed run may replace the file by a shorter one.
type lines struct {
	path string
	at   os.FileInfo // file info of the last read; nil: the file did not exist
	off  int64       // offset after the last complete line read
	most int         // maximum number of lines to pass from a file when it is first read; 0: all
	keep func(line []byte) bool
}

// read passes every new complete line of the file to the function each, without the line end. again says that the file
// was replaced or truncated, so that the caller must forget earlier lines. If the file has more than l.most lines when
// it is first read, read passes only every k-th line, the last line, and the lines that l.keep selects. It skips lines
// that are not JSON. An unreadable file counts as missing.
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
	// Stop at the current size. A file that grows as fast as it is read would have no end.
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

// sample passes lines of a file of size bytes to the function `each`. It takes the line behind each of l.most evenly
// spaced places, and the last complete line, so that it need not read the whole file.
func (l *lines) sample(f io.ReaderAt, size int64, each func(json.RawMessage)) {
	read := func(from int64, skip bool) (line []byte, end int64) {
		in := bufio.NewReaderSize(io.NewSectionReader(f, from, size-from), 16<<10)
		if skip { // skip the rest of the line at from
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
			continue // a long line has passed this place
		}
		line, end := read(from, i > 0)
		if c := compact(line); c != nil {
			each(c)
		}
		l.off = max(l.off, end)
	}
	for { // skip the lines after the last place, except the last line
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

// hand passes lines of r to the function `each`. It takes every stride-th complete line, the last line, and the lines
// that l.keep selects. It adds the number of bytes read to l.off.
func (l *lines) hand(r io.Reader, stride int, each func(json.RawMessage)) {
	in := bufio.NewReaderSize(r, 64<<10)
	var skipped []byte // the previous line, unless it was passed
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

// readLine returns the next line without its line end, and the number of bytes read. For a line longer than maxLine it
// returns nil and the number. It returns an error if the input ends before the line does.
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

// compact returns the JSON value in text without line breaks and spaces; nil if text is not JSON.
func compact(text []byte) json.RawMessage {
	var b bytes.Buffer
	if len(text) == 0 || json.Compact(&b, text) != nil {
		return nil
	}
	return b.Bytes()
}

// countLines returns the number of line ends in r.
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

// whole follows a small file that a run always replaces as a whole, such as config.yaml.
type whole struct {
	path string
	at   os.FileInfo
}

// read returns the content of the file if it has changed since the last read.
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
