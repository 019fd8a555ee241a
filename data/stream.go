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
)

// container is the way in which a file keeps its documents.
type container int

const (
	asText container = iota
	asJSON           // JSONL, or one array
	asParquet
	asTable // CSV or TSV
	asLines // every line is a row
	asArrow
)

// What the rows of a file are counted in; "" where the file is one document.
const (
	unitLine = "line"
	unitRow  = "row"
)

// maxWindow bounds how much memory, in bytes, a zstd file can ask for.
const maxWindow = 128 << 20

// codecs are the compressions, by the extension of a file's name.
var codecs = map[string]string{".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bzip2", ".xz": "xz"}

// Extensions of files, without that of a compression, by what the files hold.
var (
	parquetNames = []string{".parquet", ".pq"}
	arrowNames   = []string{".arrow"}
	tableNames   = []string{".csv", ".tsv", ".tab"}
	jsonNames    = []string{".jsonl", ".json", ".ndjson"}
	rowNames     = slices.Concat(parquetNames, arrowNames, tableNames, jsonNames)
)

// stream reads a source, uncompressed.
type stream struct {
	src       source
	name      string // the file's name in lower case, without the extension of a compression
	stop      <-chan struct{}
	file      *os.File
	size      int64     // of the file, when it was opened
	h         hash.Hash // of what was read of the file so far
	count     int64     // bytes read of the file so far
	failed    error     // the error of the first read of the file that failed
	codec     string    // gzip, zstd, bzip2, xz or none
	container container
	alien     *alien // set: the file is of a kind that mt does not read
	r         io.Reader
	unpacked  func() // frees the decompressor
	progress  func() int64

	types map[string]*colType // of the columns of a Parquet or Arrow file
	unit  string
	form  form // the form of the file's rows; known says whether it is set
	known bool
	given bool // form was given and holds for every row
	rows  int64

	partial bool // no more of the file is needed
}

// openStream opens a source and finds out from its start how to read it.
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

// peeked gives the first bytes of r, at most n, and a reader of all that r gives: those bytes
// again, then the rest or the error that came.
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

// failing is a reader that only gives an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// uncompressed is a file's name in lower case without the extension of a compression, and
// the compression; codec is "" where there is none.
func uncompressed(name string) (base, codec string) {
	name = strings.ToLower(name)
	for end, codec := range codecs {
		if base, ok := strings.CutSuffix(name, end); ok {
			return base, codec
		}
	}
	return name, ""
}

// ends tells whether name ends with one of with.
func ends(name string, with []string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasSuffix(name, w) })
}

// NamesFile tells whether a name ends like those of files that data is read from.
func NamesFile(name string) bool {
	base, codec := uncompressed(name)
	return codec != "" || ends(base, rowNames) || ends(base, []string{".txt", ".md"})
}

// isPointer tells whether a file with that start and size is a Git LFS pointer, which stands
// for a file kept elsewhere. Source: the Git LFS specification; pointers have less than 1024 bytes.
func isPointer(head []byte, size int64) bool {
	return size < 1024 && bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/"))
}

// container is the way to read a file with that name, of the data set of that number.
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
	case described && strings.HasSuffix(name, ".txt"): // as LLaMA-Factory reads it
		return asLines
	case described || s.Format != "auto" || ends(name, jsonNames):
		return asJSON
	}
	return asText
}

// raw reads the file as it is, and counts and hashes what it reads. After a read that failed
// all others fail too: whoever looks at how a file begins may drop the error
// (bufio.Reader.Peek does), and would take the file for one of another kind.
type raw struct{ st *stream }

func (r raw) Read(p []byte) (int, error) {
	select {
	case <-r.st.stop:
		return 0, ErrStopped
	default:
	}
	if r.st.size == 0 { // files that are made up as they are read have size 0 too, and some have no end
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
		var end [4]byte // the library does not notice where a file was cut off between two blocks
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

// counted is how many bytes of the file are done.
func (st *stream) counted() int64 {
	if st.progress != nil {
		return st.progress()
	}
	return st.count
}

// sum is the SHA-256 of the whole file, in hexadecimal.
func (st *stream) sum() (string, error) {
	if st.container == asParquet { // it was not read from start to end
		return sumOf(st.src.path, math.MaxInt64)
	}
	if _, err := io.Copy(io.Discard, raw{st}); err != nil {
		return "", err
	}
	return hex.EncodeToString(st.h.Sum(nil)), nil
}

// wrap adds the file's name to an error of reading it.
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
