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
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// container is how a file keeps its documents.
type container int

const (
	asText container = iota
	asJSON           // JSONL, or an array
	asParquet
	asTable // CSV or TSV
	asLines // a row each
	asArrow
)

// Units that rows of a file are counted in; none: the file is one document.
const (
	unitLine = "line"
	unitRow  = "row"
)

// maxWindow bounds the memory, in bytes, that a zstd file can ask for.
const maxWindow = 128 << 20

// codecs are the compressions by the end of a file's name.
var codecs = map[string]string{".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bzip2", ".xz": "xz"}

// Ends of files' names, without a compression's, by what the files hold.
var (
	parquetNames = []string{".parquet", ".pq"}
	arrowNames   = []string{".arrow"}
	tableNames   = []string{".csv", ".tsv", ".tab"}
	jsonNames    = []string{".jsonl", ".json", ".ndjson"}
	rowNames     = slices.Concat(parquetNames, arrowNames, tableNames, jsonNames)
)

// stream is a source that is being read, uncompressed.
type stream struct {
	src       source
	name      string // in lower case, without the end that says how it is compressed
	stop      <-chan struct{}
	file      *os.File
	size      int64     // of file, when it was opened
	h         hash.Hash // of what was read of file
	count     int64     // bytes read of file
	failed    error     // of the first read of file that did
	codec     string    // gzip, zstd, bzip2, xz or none
	container container
	alien     *alien // set: the file is none that mt reads
	r         io.Reader
	unpacked  func() // frees the decompressor
	progress  func() int64

	unit  string
	form  form // of its rows, once known
	known bool
	given bool // form holds for every row, recognisable or not
	rows  int64
}

// openStream opens a source, and looks at how it begins.
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
	} else if a, ok := alienOf(st.name, head); ok && st.container != asParquet {
		st.alien = &a
	} else if nul := bytes.IndexByte(head, 0); nul >= 0 && (st.container == asJSON || st.container == asTable || st.container == asLines) {
		st.alien = &alien{name: fmt.Sprintf("binary (byte %d is NUL)", nul), remedy: "give rows in JSONL, CSV or Parquet"}
	}
	return nil
}

// peeked is what r begins with, at most n bytes, and a reader of all that r gives:
// what is read, and the error that ends it.
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

// failing is a reader that gives an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// uncompressed is a file's name in lower case without the end that says how it is
// compressed, and what that end says.
func uncompressed(name string) (base, codec string) {
	name = strings.ToLower(name)
	for end, codec := range codecs {
		if base, ok := strings.CutSuffix(name, end); ok {
			return base, codec
		}
	}
	return name, ""
}

// ends tells whether name has one of the ends.
func ends(name string, with []string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasSuffix(name, w) })
}

// NamesFile tells whether a name ends like that of a file that data is read from.
func NamesFile(name string) bool {
	base, codec := uncompressed(name)
	return codec != "" || ends(base, rowNames) || ends(base, []string{".txt", ".md"})
}

// isPointer tells whether a file of that start and size stands for one that Git
// LFS keeps elsewhere. Source: the Git LFS specification, below 1024 bytes.
func isPointer(head []byte, size int64) bool {
	return size < 1024 && bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/"))
}

// container is how a file of that name is read.
func (s *Spec) container(name string, set int) container {
	described := s.sets[set].Format != ""
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
	case described && strings.HasSuffix(name, ".txt"): // as LLaMA-Factory reads it
		return asLines
	case described || s.Format != "auto" || ends(name, jsonNames):
		return asJSON
	}
	return asText
}

// raw reads the file as it is, counting and summing. A read that fails fails for good:
// whoever looks at how a file begins may forget the error (bufio.Reader.Peek), and
// would take it for another kind of file.
type raw struct{ st *stream }

func (r raw) Read(p []byte) (int, error) {
	select {
	case <-r.st.stop:
		return 0, ErrStopped
	default:
	}
	if r.st.size == 0 { // so says also what is made as it is read, and may have no end
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
		var end [4]byte // the library takes a file that ends between two blocks for whole
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

// counted is how many bytes of the file have been dealt with.
func (st *stream) counted() int64 {
	if st.progress != nil {
		return st.progress()
	}
	return st.count
}

// sum is the SHA-256 of the whole file.
func (st *stream) sum() (string, error) {
	if st.container == asParquet { // read at places
		return sumOf(st.src.path)
	}
	if _, err := io.Copy(io.Discard, raw{st}); err != nil {
		return "", err
	}
	return hex.EncodeToString(st.h.Sum(nil)), nil
}

// wrap names the file in an error of reading it.
func (st *stream) wrap(err error) error {
	if st.codec != "" {
		return fmt.Errorf("%s: %s: %w", st.src.path, st.codec, err)
	}
	return fmt.Errorf("%s: %w", st.src.path, err)
}

func (st *stream) close() {
	st.unpacked()
	st.file.Close()
}
