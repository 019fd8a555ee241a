package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// container is how a file keeps its documents.
type container int

const (
	asText container = iota
	asJSON           // JSONL, or an array
	asParquet
)

// Units that rows of a file are counted in; none: the file is one document.
const (
	unitLine = "line"
	unitRow  = "row"
)

// maxWindow bounds the memory, in bytes, that a zstd file can ask for.
const maxWindow = 128 << 20

// codecs are the compressions by the end of a file's name.
var codecs = map[string]string{".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}

// stream is a source that is being read, uncompressed.
type stream struct {
	src       source
	stop      <-chan struct{}
	file      *os.File
	h         hash.Hash // of what was read of file
	count     int64     // bytes read of file
	codec     string    // gzip, zstd or none
	container container
	r         io.Reader
	unpacked  func() // frees the decompressor
	progress  func() int64

	unit  string
	form  form // of its rows, once known
	known bool
	given bool // form holds for every row, recognisable or not
	rows  int64
}

// openStream opens a source.
func openStream(src source, s *Spec) (*stream, error) {
	f, err := os.Open(src.path)
	if err != nil {
		return nil, err
	}
	if isPointer(f, src.size) {
		f.Close()
		return nil, fmt.Errorf("%s is a Git LFS pointer and not the data itself; run `git lfs pull` where it came from, or download it again", src.path)
	}
	st := &stream{src: src, stop: s.Stop, file: f, h: sha256.New(), unpacked: func() {}}
	name := strings.ToLower(src.path)
	for end, codec := range codecs {
		if strings.HasSuffix(name, end) {
			name, st.codec = strings.TrimSuffix(name, end), codec
			break
		}
	}
	st.container = s.container(name, src.set)
	if err := st.unpack(); err != nil {
		st.close()
		return nil, st.wrap(err)
	}
	return st, nil
}

// isPointer tells whether a file of that size stands for one that Git LFS keeps
// elsewhere. Source: the Git LFS specification, below 1024 bytes.
func isPointer(f io.ReaderAt, size int64) bool {
	const start = "version https://git-lfs.github.com/spec/"
	var b [len(start)]byte
	if size >= 1024 {
		return false
	}
	n, _ := f.ReadAt(b[:], 0) // a shorter file is none
	return string(b[:n]) == start
}

// container is how a file of that name is read.
func (s *Spec) container(name string, set int) container {
	rows := s.sets[set].Format != "" || s.Format != "auto" && s.Format != "text"
	ends := func(with ...string) bool {
		for _, w := range with {
			if strings.HasSuffix(name, w) {
				return true
			}
		}
		return false
	}
	switch {
	case ends(".parquet", ".pq") || s.Format == "parquet":
		return asParquet
	case rows || s.Format == "auto" && ends(".jsonl", ".json", ".ndjson"):
		return asJSON
	}
	return asText
}

// raw reads the file as it is, counting and summing.
type raw struct{ st *stream }

func (r raw) Read(p []byte) (int, error) {
	select {
	case <-r.st.stop:
		return 0, ErrStopped
	default:
	}
	n, err := r.st.file.Read(p)
	r.st.count += int64(n)
	r.st.h.Write(p[:n])
	return n, err
}

func (st *stream) unpack() error {
	st.r = raw{st}
	switch st.codec {
	case "gzip":
		z, err := gzip.NewReader(st.r)
		if err == io.EOF { // an empty file
			return nil
		}
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
