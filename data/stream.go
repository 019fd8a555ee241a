package data

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"mt/data/tokenizer"
)

// container is the way in which a file stores its documents, such as JSON lines or Parquet.
type container int

const (
	asText container = iota
	asJSON           // JSONL, or one array
	asParquet
	asTable // CSV or TSV
	asLines // one row per line
	asArrow
)

// The units in which errors count the rows of a file; "": the file is one document.
const (
	unitLine = "line"
	unitRow  = "row"
)

// maxWindow is the most memory, in bytes, that decompressing a zstd file may take.
const maxWindow = 128 << 20

// codecs maps file extensions to compressions.
var codecs = map[string]string{".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bzip2", ".xz": "xz"}

// File extensions by container; an extension of a compression, such as .gz, may follow them.
var (
	parquetNames = []string{".parquet", ".pq"}
	arrowNames   = []string{".arrow"}
	tableNames   = []string{".csv", ".tsv", ".tab"}
	jsonNames    = []string{".jsonl", ".json", ".ndjson"}
	rowNames     = slices.Concat(parquetNames, arrowNames, tableNames, jsonNames)
)

// stream reads and decompresses one source file.
type stream struct {
	src         source
	name        string // lower-case file name without a compression's extension
	stop        <-chan struct{}
	file        *os.File
	size        int64     // size of the file when it was opened
	h           hash.Hash // hash of the bytes read so far
	count       int64     // bytes of the file read so far
	failed      error     // first error of reading the file
	codec       string    // gzip, zstd, bzip2, xz or none
	container   container
	unsupported *unsupportedFormat // not nil: the file has a format that mt does not read
	r           io.Reader
	unpacked    func() // frees the decompressor's memory
	progress    func() int64

	types map[string]*colType // column types of a Parquet or Arrow file
	unit  string
	form  form // form of the file's rows; known reports that it is set
	known bool
	given bool // form was given and holds for all rows
	rows  int64

	partial bool // no more of the file is needed
}

// openStream opens the source file src. The file's first bytes and its name tell its compression and format.
func openStream(src source, s *Spec) (*stream, error) {
	f, info, err := openRegular(src.path)
	if err != nil {
		return nil, err
	}
	st := &stream{src: src, stop: s.Stop, file: f, size: info.Size(), h: sha256.New(), unpacked: func() {}}
	if err := st.begin(s); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (st *stream) begin(s *Spec) error {
	head := make([]byte, min(headBytes, st.size))
	if n, err := st.file.ReadAt(head, 0); err != nil && err != io.EOF {
		return st.wrap(err)
	} else if head = head[:n]; isPointer(head, st.size) {
		return fmt.Errorf("%s is a Git LFS pointer and not the data itself; run `git lfs pull` where it came from, or download it again", st.src.path)
	}
	st.name, st.codec = uncompressed(st.src.path)
	if st.codec == "" {
		st.codec = codecOf(head)
	}
	st.container = s.container(st.name, st.src.set)
	if err := st.unpack(); err != nil {
		return st.wrap(err)
	}
	if st.codec != "" {
		head, st.r = peeked(st.r, headBytes)
	}
	if c := rowsIn(head); c != asText {
		st.container = c
	} else if a, ok := unsupportedOf(st.name, head); ok && st.container != asParquet {
		st.unsupported = &a
	} else if nul := bytes.IndexByte(head, 0); nul >= 0 && (st.container == asJSON || st.container == asTable || st.container == asLines) {
		st.unsupported = &unsupportedFormat{name: fmt.Sprintf("binary (byte %d is NUL)", nul), remedy: "give rows in JSONL, CSV or Parquet"}
	}
	return nil
}

// peeked returns the first n bytes of r, fewer if r ends or fails, and a reader. The reader yields
// everything that r yields, the returned bytes included. An error of r appears after the bytes that
// precede it.
func peeked(r io.Reader, n int) ([]byte, io.Reader) {
	head := make([]byte, 0, n)
	var err error
	for k := 0; len(head) < n && err == nil; {
		k, err = r.Read(head[len(head):n])
		head = head[:len(head)+k]
	}
	if err != nil {
		r = failing{err}
	}
	return head, io.MultiReader(bytes.NewReader(head), r)
}

// failing is a reader whose every read returns this error. In the reader of peeked, it follows the
// bytes that were read before the error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// uncompressed returns a file's name in lower case, without the extension of a compression, and that compression;
// codec "": the name has no such extension.
func uncompressed(name string) (base, codec string) {
	name = strings.ToLower(name)
	for end, codec := range codecs {
		if base, ok := strings.CutSuffix(name, end); ok {
			return base, codec
		}
	}
	return name, ""
}

// ends reports whether name ends with one of the strings in the list `with`.
func ends(name string, with []string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasSuffix(name, w) })
}

// NamesFile reports whether name ends like the name of a data file, such as .jsonl or .txt.gz.
func NamesFile(name string) bool {
	base, codec := uncompressed(name)
	return codec != "" || ends(base, rowNames) || ends(base, []string{".txt", ".md"})
}

// isPointer reports whether a file with this start and size is a Git LFS pointer, which stands for a file stored
// elsewhere. Source: the Git LFS specification; pointers have fewer than 1024 bytes.
func isPointer(head []byte, size int64) bool {
	return size < 1024 && bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/"))
}

// container returns the container of a file of data set number set. The set's key kept decides; without it, the
// extension of the file's name.
func (s *Spec) container(name string, set int) container {
	described := s.sets[set].Format != ""
	switch s.sets[set].Kept {
	case "json":
		return asJSON
	case "csv":
		return asTable
	case "parquet":
		return asParquet
	case "arrow":
		return asArrow
	case "text":
		return asLines
	}
	switch s.Format {
	case "parquet":
		return asParquet
	case "csv":
		return asTable
	case "text":
		if !described {
			return asText
		}
	}
	switch {
	case ends(name, parquetNames):
		return asParquet
	case s.Format == "jsonl":
		return asJSON
	case ends(name, arrowNames):
		return asArrow
	case ends(name, tableNames):
		return asTable
	case described && strings.HasSuffix(name, ".txt"): // LLaMA-Factory reads such files line by line
		return asLines
	case described || s.Format != "auto" || ends(name, jsonNames):
		return asJSON
	}
	return asText
}

// raw reads the file's own bytes, and counts and hashes them. After a failed read, all further
// reads fail too. Some code peeks at a file's start and ignores the error, as bufio.Reader.Peek
// does; a later read that succeeded would then skip the failed part unnoticed.
type raw struct{ st *stream }

func (r raw) Read(p []byte) (int, error) {
	select {
	case <-r.st.stop:
		return 0, ErrStopped
	default:
	}
	if r.st.size == 0 { // generated files, as in /proc, have size 0 too, and some never end
		return 0, io.EOF
	}
	if r.st.failed != nil {
		return 0, r.st.failed
	}
	n, err := r.st.file.Read(p)
	if err != nil && err != io.EOF {
		r.st.failed = err
	}
	r.st.count += int64(n)
	r.st.h.Write(p[:n])
	if r.st.count > r.st.size {
		return n, fmt.Errorf("the file grew while it was read: it had %d bytes; wait until it is written, or copy it", r.st.size)
	}
	return n, err
}

func (st *stream) unpack() error {
	st.r = raw{st}
	if st.size == 0 {
		return nil
	}
	switch st.codec {
	case "gzip":
		z, err := gzip.NewReader(st.r)
		if err != nil {
			return err
		}
		st.r = z
	case "zstd":
		z, err := zstd.NewReader(st.r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		st.r, st.unpacked = z, z.Close
	case "bzip2":
		st.r = bzip2.NewReader(bufio.NewReaderSize(st.r, 64<<10))
	case "xz":
		var end [4]byte // the library misses a truncation between two blocks
		if _, err := st.file.ReadAt(end[:], st.size-4); err != nil || string(end[2:]) != "YZ" && end != [4]byte{} {
			return errors.New("the file was cut off")
		}
		z, err := xz.NewReader(bufio.NewReaderSize(st.r, 64<<10))
		if err != nil {
			return err
		}
		st.r = z
	}
	return nil
}

func (st *stream) Read(p []byte) (int, error) { return st.r.Read(p) }

// counted returns how many bytes of the file have been read. For a Parquet file, which is not read in order, it is an
// estimate from the number of rows.
func (st *stream) counted() int64 {
	if st.progress != nil {
		return st.progress()
	}
	return st.count
}

// sum returns the SHA-256 of the whole file, in hexadecimal, which the token cache records for the
// file.
func (st *stream) sum() (string, error) {
	if st.container == asParquet { // it was not read from start to end
		return sumOf(st.src.path, math.MaxInt64)
	}
	if _, err := io.Copy(io.Discard, raw{st}); err != nil {
		return "", err
	}
	return hex.EncodeToString(st.h.Sum(nil)), nil
}

// wrap adds the file's name to an error, and advice for some errors.
func (st *stream) wrap(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("%w: it was written with --long, and reading it takes more than %d MiB of memory; uncompress it (zstd -d --long=31), or recompress it without --long", err, maxWindow>>20)
	}
	if st.codec != "" {
		return fmt.Errorf("%s: %s: %w", st.src.path, st.codec, err)
	}
	return fmt.Errorf("%s: %w", st.src.path, err)
}

func (st *stream) close() {
	st.unpacked()
	st.file.Close()
}

// A chunk is sent when it has this many bytes or rows.
const (
	chunkBytes = 256 << 10
	chunkRows  = 4096
)

// record is a row, or a piece of a text, in a chunk. Its bytes are buf[from:to] of the chunk.
type record struct {
	from, to    int
	n           int64 // line or row number; 0: the file is one document
	first, last bool  // first or last piece of its document
	err         error // the error of a bad row
}

// chunk is a series of rows of a source, or a piece of a text. The feeder makes it, an encoder adds the tokens
// (docs), and the builder writes them.
type chunk struct {
	src   source
	index int   // index of the source
	seq   int64 // number of the chunk in reading order
	unit  string
	types map[string]*colType // column types of a Parquet or Arrow file
	form  form
	known bool // form is set; otherwise every row so far was bad
	given bool // form was given and need not be recognised in each row
	buf   []byte
	recs  []record
	rows  int64         // rows of the source up to the end of this chunk
	bytes int64         // bytes of the source up to the end of this chunk
	end   *cachedFile   // not nil: the chunk only marks the end of the source
	err   error         // the reason why reading ended here
	ready chan struct{} // closed when docs are set

	docs      []encoded
	ids, labs []int32
}

// encoded describes a document, or a part of one, after tokenizing. Its ids are ids[from:to] of the
// chunk.
type encoded struct {
	kind        kind
	from, to    int // range of its ids
	labels      int // start of its labels in the chunk's labs; -1: none
	cut         int // of a pair: number of ids of the chosen document
	line        int64
	flags       uint64
	first, last bool
	err         error // the error of a bad row
	fatal       error // an error that skip_bad_rows does not skip
	ends        bool  // the error is of a kind that ends the reading, so no later row is wanted
}

// bad reports whether reading ends with this chunk. Either reading the source failed, or the
// chunk's last document has an error that ends the reading.
func (c *chunk) bad() bool {
	n := len(c.docs)
	return c.err != nil || n > 0 && c.docs[n-1].ends
}

func (c *chunk) add(r record, text []byte) {
	r.from = len(c.buf)
	c.buf = append(c.buf, text...)
	r.to = len(c.buf)
	c.recs = append(c.recs, r)
}

// feeder reads the sources, cuts them into chunks, and sends the chunks in order to the builder and the encoders.
type feeder struct {
	spec   *Spec
	supply *supply
	size   int         // bytes of a chunk
	index  int         // index of the current source
	sent   int64       // number of chunks sent
	out    chan *chunk // to the builder, in order
	work   chan *chunk // to any free encoder
	quit   chan struct{}
}

// errQuit ends the feeder after the builder has stopped, since nobody takes more chunks.
var errQuit = errors.New("quit")

// chunk returns an empty chunk for data that the stream st will yield next.
func (f *feeder) chunk(st *stream) *chunk {
	return &chunk{src: st.src, index: f.index, ready: make(chan struct{})}
}

// send sends a chunk to the builder and the encoders. It blocks while the builder is too far behind (out is full).
func (f *feeder) send(c *chunk) error {
	c.seq = f.sent
	f.sent++
	if f.spec.stopped() {
		c.err = ErrStopped
	}
	select {
	case f.out <- c:
	case <-f.quit:
		return errQuit
	}
	if c.err != nil || len(c.recs) == 0 {
		close(c.ready)
		return c.err
	}
	f.work <- c // never blocks: work has room for all chunks in out
	return nil
}

// run sends the chunks of all sources, from the position from on; earlier rows are in the cache already.
func (f *feeder) run(sources []source, from position) {
	defer close(f.out)
	defer close(f.work)
	for f.index = from.Source; f.index < len(sources); f.index++ {
		skip := int64(0)
		if f.index == from.Source {
			skip = from.Rows
		}
		if err := f.source(sources[f.index], skip); err != nil {
			if !errors.Is(err, errQuit) && !errors.Is(err, ErrStopped) {
				_ = f.send(&chunk{src: sources[f.index], err: err, ready: make(chan struct{})})
			}
			return
		}
	}
}

// wholeFile is the size in bytes up to which a text file is read in one piece.
const wholeFile = 16 << 20

// pieceBytes is the size of the pieces in which a longer text file is read. A piece ends at a
// position where the tokenizer may cut the text. If there is no such position, the piece grows up
// to mostPiece bytes; beyond that is an error.
const (
	pieceBytes = 4 << 20
	mostPiece  = 1 << 30
)

// text sends the file as one document. skip > 0: the document is in the cache already, and only the file's end is
// sent. A file that is empty, or that has a NUL byte and thus is binary, sends no document.
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

// findNUL reads r to its end and returns the offset of the first NUL byte; -1: there is none.
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

// pieces opens a long text file again and sends it piece by piece. tok finds the positions at which
// the tokenizer may cut the text.
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
			cut = tok.Split(text[:len(text)-1]) // keep one byte, so that the last piece is not empty
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

// rows sends the rows of a file that r reads. It leaves out the first skip rows, which are in the cache already.
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

// sendAt sends the chunk c after it has copied the stream's form, unit and types into c. It also
// records in c how many rows and bytes were read so far.
func (f *feeder) sendAt(st *stream, c *chunk) error {
	c.form, c.known, c.given, c.unit, c.types = st.form, st.known, st.given, st.unit, st.types
	c.rows, c.bytes = st.rows, st.counted()
	return f.send(c)
}

// learn finds the form of the file's rows from row, the first row. If the form is known already, it does nothing.
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

// source sends the documents of the file src, then a chunk that marks the file's end. It leaves out
// the documents of the first skip rows, which are in the cache already.
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
	case st.unsupported != nil && (src.named || kind != asText):
		return st.wrap(errors.New(st.unsupported.String()))
	case st.unsupported != nil:
		entry.Binary, entry.Unsupported = true, st.unsupported.String()
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

// ended sends c as the mark that its source has ended. entry is the record of the source for the cache.
func (f *feeder) ended(c *chunk, entry *cachedFile) error {
	c.end, c.bytes = entry, entry.Size
	return f.send(c)
}

// table sends the rows of a file in a container of rows (JSON, CSV, Parquet and so on), except the first skip rows.
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

// parquet sends the rows of a Parquet file, except the first skip rows.
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

// maxRow is the largest size of a row in bytes; a longer row is a bad row.
const maxRow = 256 << 20

// rowReader reads the rows of a file in order.
type rowReader interface {
	// next appends the next row to dst as JSON. n is the row's number, from 1. err is io.EOF at the end of the
	// file. If err is a *badRow, only this row is bad, and reading can continue.
	next(dst []byte) (row []byte, n int64, err error)
}

var errRowSize = &badRow{err: fmt.Errorf("the row is larger than %d MiB; split it", maxRow>>20)}
