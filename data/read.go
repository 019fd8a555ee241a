package data

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"time"

	"mt/data/tokenizer"
)

// kind is what a data set's documents are.
type kind string

const (
	kindText kind = "text"
	kindIDs  kind = "input_ids"
)

// wholeFile is up to which size, in bytes, a text file is read in one piece.
const wholeFile = 16 << 20

// builder reads sources into a cache file.
type builder struct {
	spec        *Spec
	w           *cacheWriter
	row         jsonRow
	ids         []int32
	done, total int64 // bytes of the sources
	told        int64 // done when progress was last told
}

// buildCache reads all sources into the cache file name.
func buildCache(name string, s *Spec, sources []source) (err error) {
	b := &builder{spec: s}
	for _, src := range sources {
		b.total += src.size
	}
	b.w, err = newCacheWriter(name, manifest{
		Tokenizer:  s.tokenizerID(),
		TokenBytes: cacheTokenBytes(s.VocabSize),
		Started:    time.Now().UnixNano(),
	})
	if err != nil {
		return fmt.Errorf("token cache: %w; set cache_dir to a folder that can be written", err)
	}
	defer func() { err = errors.Join(err, b.w.close()) }()
	for _, src := range sources {
		if s.stopped() {
			return ErrStopped
		}
		if err := b.read(src); err != nil {
			return err
		}
	}
	s.progress(b.total, b.total, tokenizing)
	if b.w.Docs == 0 {
		return fmt.Errorf("the data set is empty: %s", nothingIn(sources))
	}
	if err := b.w.finish(); err != nil {
		return fmt.Errorf("token cache: %w", err)
	}
	return nil
}

// nothingIn says of sources that they hold no document.
func nothingIn(sources []source) string {
	switch n := len(sources); n {
	case 0:
		return "it has no files"
	case 1:
		return sources[0].path + " holds no document"
	default:
		return fmt.Sprintf("its %d files, from %s on, hold no document", n, sources[0].path)
	}
}

const tokenizing = "tokenize"

// advance tells progress, once a MiB.
func (b *builder) advance(bytes int) {
	b.done += int64(bytes)
	if b.done-b.told >= 1<<20 {
		b.told = b.done
		b.spec.progress(b.done, b.total, tokenizing)
	}
}

func (b *builder) read(src source) error {
	if b.spec.Format == "auto" && strings.HasSuffix(strings.ToLower(src.path), ".parquet") {
		return fmt.Errorf("%s: Parquet is not supported yet; text and JSONL are", src.path)
	}
	f, err := os.Open(src.path)
	if err != nil {
		return err
	}
	defer f.Close()
	before, done := b.w.Docs, b.done
	entry := cachedFile{Path: src.path, Size: src.size, MTime: src.mtime}
	h := sha256.New()
	if b.spec.isJSONL(src.path) {
		err = b.readJSONL(src.path, io.TeeReader(f, h))
	} else {
		entry.Binary, err = b.readText(src, f, h)
	}
	if err != nil {
		return err
	}
	b.advance(int(done + src.size - b.done))
	if !entry.Binary {
		entry.SHA256 = hex.EncodeToString(h.Sum(nil))
	}
	entry.Docs = b.w.Docs - before
	b.w.Files = append(b.w.Files, entry)
	return nil
}

// become settles what the data set's documents are; one data set holds one
// kind.
func (b *builder) become(k kind) error {
	if b.w.Kind == "" {
		b.w.Kind = k
	}
	if b.w.Kind != k {
		return fmt.Errorf("this is %s, and what came before is %s; a data set is of one kind, so choose its files, for instance with a glob", k, b.w.Kind)
	}
	return nil
}

// readText makes a file one document. A file with a NUL byte is binary and
// makes none; an empty one neither.
func (b *builder) readText(src source, f *os.File, h hash.Hash) (isBinary bool, err error) {
	split, streams := b.spec.Tokenizer.(tokenizer.Splitter)
	var nul int64
	var text []byte
	if streams && src.size > wholeFile {
		nul, err = findNUL(io.TeeReader(f, h))
	} else if text, err = io.ReadAll(f); err == nil {
		h.Write(text)
		nul = int64(bytes.IndexByte(text, 0))
	}
	switch {
	case err != nil:
		return false, err
	case nul >= 0 && src.named:
		return false, fmt.Errorf("%s is binary (byte %d is NUL); give text or JSONL", src.path, nul)
	case nul >= 0:
		return true, nil
	case text != nil && len(text) == 0:
		return false, nil
	}
	tok, err := b.spec.tokenizerFor(src.path)
	if err != nil {
		return false, err
	}
	if err := b.become(kindText); err != nil {
		return false, fmt.Errorf("%s: %w", src.path, err)
	}
	if text == nil {
		return false, b.streamText(src, f, split)
	}
	return false, b.addText(tok, text, src.path, 0)
}

// findNUL is the place of the first NUL byte, -1 where none is. It reads all.
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

// streamText encodes a long file piece by piece.
func (b *builder) streamText(src source, f *os.File, tok tokenizer.Splitter) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	before := b.w.Tokens
	buf, kept := make([]byte, 4<<20), 0
	for {
		n, err := io.ReadFull(f, buf[kept:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		text, last := buf[:kept+n], err != nil
		cut := len(text)
		if !last {
			cut = tok.Split(text)
		}
		if err := b.addPiece(tok, text[:cut], src.path, last); err != nil {
			return err
		}
		b.advance(n)
		if b.spec.stopped() {
			return ErrStopped
		}
		if last {
			return b.endText(before, src.path, 0)
		}
		if kept = copy(buf, text[cut:]); kept == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// addPiece adds a part of a text; the last one ends with EOS.
func (b *builder) addPiece(tok tokenizer.Tokenizer, text []byte, where string, last bool) (err error) {
	if b.ids, err = tok.Encode(b.ids[:0], text); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if eos, ok := tok.EOS(); ok && last {
		b.ids = append(b.ids, eos)
	}
	return b.w.tokens(b.ids, nil)
}

// addText adds a document that is in memory.
func (b *builder) addText(tok tokenizer.Tokenizer, text []byte, where string, line int64) error {
	before := b.w.Tokens
	if err := b.addPiece(tok, text, where, true); err != nil {
		return err
	}
	return b.endText(before, where, line)
}

// endText ends a document that began after before tokens.
func (b *builder) endText(before int64, where string, line int64) error {
	if n := b.w.Tokens - before; n < 2 {
		return fmt.Errorf("%s: the text makes %d token(s); a row takes at least 2, one to see and one to predict; remove it", where, n)
	}
	return b.w.endDoc(line)
}

// readJSONL makes every line that is not blank a document.
func (b *builder) readJSONL(path string, r io.Reader) error {
	lines := bufio.NewReaderSize(r, 1<<20)
	var line []byte
	for n := int64(1); ; n++ {
		var err error
		if line, err = readLine(lines, line[:0]); err != nil && err != io.EOF {
			return err
		}
		b.advance(len(line))
		if b.spec.stopped() {
			return ErrStopped
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			if err := b.addRow(trimmed, path, n); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readLine appends the next line to dst; it may be of any length.
func readLine(r *bufio.Reader, dst []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		dst = append(dst, part...)
		if err != bufio.ErrBufferFull {
			return dst, err
		}
	}
}

func (b *builder) addRow(line []byte, path string, n int64) error {
	where := fmt.Sprintf("%s:%d", path, n)
	if err := b.row.parse(line, b.spec.VocabSize); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if err := b.become(b.row.kind); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if b.row.kind == kindText {
		tok, err := b.spec.tokenizerFor(where)
		if err != nil {
			return err
		}
		return b.addText(tok, b.row.text, where, n)
	}
	if err := b.w.tokens(b.row.ids, b.row.labels); err != nil {
		return err
	}
	return b.w.endDoc(n)
}
