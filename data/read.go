package data

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"mt/tokenizer"
)

// wholeFile is the size in bytes up to which a text file is read in one piece.
const wholeFile = 16 << 20

// pieceBytes is how much of a longer file is read at a time. mostPiece is how much is read
// at most where the tokenizer finds no place to cut.
const (
	pieceBytes = 4 << 20
	mostPiece  = 1 << 30
)

// text makes a file one document. A file with a NUL byte is binary and makes none, and
// neither does an empty one.
func (f *feeder) text(st *stream, skip int64) (isBinary bool, err error) {
	src := st.src
	text, err := io.ReadAll(io.LimitReader(st, wholeFile+1))
	if err != nil {
		return false, st.wrap(err)
	}
	split, streams := f.spec.Tokenizer.(tokenizer.Splitter)
	long := len(text) > wholeFile
	if long && !streams {
		rest, err := io.ReadAll(st)
		if err != nil {
			return false, st.wrap(err)
		}
		text, long = append(text, rest...), false
	}
	nul := int64(bytes.IndexByte(text, 0))
	if long && nul < 0 {
		if nul, err = findNUL(st); err != nil {
			return false, st.wrap(err)
		}
		if nul >= 0 {
			nul += int64(len(text))
		}
	}
	switch {
	case nul >= 0 && src.named:
		return false, fmt.Errorf("%s is binary (byte %d is NUL); give text, or rows in JSONL, CSV or Parquet", src.path, nul)
	case nul >= 0:
		return true, nil
	case len(text) == 0 || skip > 0:
		return false, nil
	case long:
		return false, f.pieces(st, split)
	}
	c := f.chunk(st)
	c.add(record{first: true, last: true}, text)
	st.rows = 1
	return false, f.sendAt(st, c)
}

// findNUL is the place of the first NUL byte of r, -1 where there is none. It reads all of r.
func findNUL(r io.Reader) (int64, error) {
	buf, at, found := make([]byte, 1<<20), int64(0), int64(-1)
	for {
		n, err := r.Read(buf)
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 && found < 0 {
			found = at + int64(i)
		}
		at += int64(n)
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return found, err
		}
	}
}

// pieces reads a long file a second time and sends it piece by piece.
func (f *feeder) pieces(st *stream, tok tokenizer.Splitter) error {
	again, err := openStream(st.src, f.spec)
	if err != nil {
		return err
	}
	defer again.close()
	st.progress = again.counted
	buf, kept, first := make([]byte, pieceBytes), 0, true
	for {
		n, err := io.ReadFull(again, buf[kept:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return st.wrap(err)
		}
		text, last := buf[:kept+n], err != nil
		cut := len(text)
		if !last {
			cut = tok.Split(text[:len(text)-1]) // one byte stays, so that the last piece is not empty
		}
		if cut == 0 {
			if len(buf) >= mostPiece {
				return fmt.Errorf("%s: the tokenizer finds no place to cut %d bytes; break the text into lines", st.src.path, len(text))
			}
			kept = len(text)
			buf = append(buf, make([]byte, len(buf))...)
			continue
		}
		c := f.chunk(st)
		c.add(record{first: first, last: last}, text[:cut])
		if last {
			st.rows = 1
		}
		if err := f.sendAt(st, c); err != nil || last {
			return err
		}
		first = false
		kept = copy(buf, text[cut:])
	}
}

// rows sends a file's rows without the first skip of them.
func (f *feeder) rows(st *stream, r rowReader, skip int64) error {
	st.form, st.known = f.spec.formIn(st.src.set)
	st.given = st.known
	c := f.chunk(st)
	for {
		if f.supply.enough(st.src.set) {
			st.partial = true
			return f.sendAt(st, c)
		}
		from := len(c.buf)
		buf, n, err := r.next(c.buf)
		c.buf = buf
		var bad *badRow
		switch {
		case err == io.EOF:
			return f.sendAt(st, c)
		case errors.As(err, &bad):
			c.recs = append(c.recs, record{from: from, to: from, n: n, err: bad})
		case err != nil:
			return st.wrap(err)
		default:
			st.learn(f.spec, c.buf[from:])
			c.recs = append(c.recs, record{from: from, to: len(c.buf), n: n})
		}
		if st.rows++; st.rows <= skip {
			c.buf, c.recs = c.buf[:from], c.recs[:0]
		} else {
			f.supply.rows[st.src.set]++
		}
		if len(c.buf) < f.size && len(c.recs) < chunkRows && st.rows != skip {
			continue
		}
		if err := f.sendAt(st, c); err != nil {
			return err
		}
		c = f.chunk(st)
	}
}

// sendAt sends c, and notes in it how far the stream has been read.
func (f *feeder) sendAt(st *stream, c *chunk) error {
	c.form, c.known, c.given, c.unit, c.types = st.form, st.known, st.given, st.unit, st.types
	c.rows, c.bytes = st.rows, st.counted()
	return f.send(c)
}

// learn takes the form of the file's rows from row, if no earlier row had one.
func (st *stream) learn(s *Spec, row []byte) {
	if st.known {
		return
	}
	if fields, err := rowFields(row, s.lists(st.src.set)); err == nil {
		if form, err := s.formOf(st.src.set, fields); err == nil {
			st.form, st.known = form, true
		}
	}
}

// source sends one file: its documents, without those of the first skip rows, and then its
// end.
func (f *feeder) source(src source, skip int64) error {
	entry := &cachedFile{Path: src.path, Size: src.size, MTime: src.mtime, Set: src.set}
	if f.supply.enough(src.set) {
		return f.ended(&chunk{src: src, index: f.index, ready: make(chan struct{})}, entry)
	}
	st, err := openStream(src, f.spec)
	if err != nil {
		return err
	}
	defer st.close()
	switch kind := st.container; {
	case st.alien != nil && (src.named || kind != asText):
		return st.wrap(errors.New(st.alien.String()))
	case st.alien != nil:
		entry.Binary, entry.Alien = true, st.alien.String()
	case kind == asText:
		if err := f.spec.Columns.ofText(src.path); err != nil {
			return err
		}
		st.form, st.known = form{format: fmtText}, true
		entry.Binary, err = f.text(st, skip)
		f.supply.rows[src.set] += st.rows
	default:
		err = f.table(st, skip)
	}
	if err != nil {
		return err
	}
	if st.partial {
		entry.Read, entry.SHA256 = st.count, hex.EncodeToString(st.h.Sum(nil))
	} else if entry.SHA256, err = st.sum(); err != nil {
		return err
	}
	if entry.Binary {
		entry.SHA256 = ""
	}
	entry.Format, entry.Unit = string(st.form.format), st.unit
	return f.ended(f.chunk(st), entry)
}

// ended sends c, which says that its source ends.
func (f *feeder) ended(c *chunk, entry *cachedFile) error {
	c.end, c.bytes = entry, entry.Size
	return f.send(c)
}

// table sends the rows of a file that has rows.
func (f *feeder) table(st *stream, skip int64) error {
	set := st.src.set
	st.unit = unitLine
	switch st.container {
	case asParquet:
		return f.parquet(st, skip)
	case asTable:
		return f.rows(st, newTable(st, st.name, f.spec.lists(set), f.spec.answers(set)), skip)
	case asLines:
		return f.rows(st, &textRows{r: bufio.NewReaderSize(st, 256<<10)}, skip)
	case asArrow:
		st.unit = unitRow
		r, err := openArrow(st, f.spec.wanted(set), savedTypes(st.src.path))
		if err != nil {
			return st.wrap(err)
		}
		st.types = r.types
		return f.rows(st, r, skip)
	}
	return f.rows(st, newJSONRows(st, &st.unit), skip)
}

// parquet sends the rows of a Parquet file.
func (f *feeder) parquet(st *stream, skip int64) error {
	if st.codec != "" {
		return fmt.Errorf("%s: a compressed Parquet file; uncompress it (its columns are compressed anyway)", st.src.path)
	}
	r, err := openParquet(st.file, st.size, f.spec.wanted(st.src.set))
	if err != nil {
		return st.wrap(err)
	}
	defer r.close()
	st.unit, st.progress, st.types = unitRow, r.progress, r.types
	return f.rows(st, r, skip)
}
