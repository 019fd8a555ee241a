package tokenizer

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// ErrUTF8 is Encode's error for text that is not UTF-8, which the vocabularies
// of tokenizer.json take.
var ErrUTF8 = errors.New("this is not UTF-8 text")

// ErrLong is Encode's error for a text too long to be encoded at once.
var ErrLong = errors.New("a text of more than 256 MiB; cut it into several")

// ErrGrown is Encode's error for a text that normalizers make many times
// longer.
var ErrGrown = errors.New("the normalizers of tokenizer.json make this text far too long")

const maxText = 256 << 20

// hf is a tokenizer read from tokenizer.json.
type hf struct {
	model *bpe
	norms []normalizer
	pre   []preTokenizer
	// scan is the pattern that cuts a text into words, where nothing else has to be done
	// to the text; nil where there is more to do.
	scan *scanner

	added    map[int32]*added
	addedIDs map[string]int32
	specials map[string]bool // the contents of the special ones
	names    map[string]any  // what templates see of the named ones: see Named
	order    [2][]string     // the contents of special tokens, and of others, in the order of the files
	// lastAdded is the largest id of an added token, addedBytes the length of all their contents.
	lastAdded, addedBytes int
	// raw and normal find added tokens before and after normalizing.
	raw, normal *trie
	decoders    []decoder // without any, tokens are joined with spaces
	post        []postProcessor

	origins  bool  // origins are needed, since ids depend on where pieces come from
	bos, eos int32 // -1: none
	size     int
	id       string
	files    map[string][]byte

	mu      sync.Mutex
	workers []*worker
}

// maxWorkers is how many workers are kept between calls of Encode.
const maxWorkers = 64

func (t *hf) worker() *worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.workers); n > 0 {
		w := t.workers[n-1]
		t.workers = t.workers[:n-1]
		return w
	}
	return &worker{t: t, u: unicodeClasses(), cache: make([]cached, 2<<cacheBits)}
}

// release keeps w for the next call, without large buffers.
func (t *hf) release(w *worker) {
	const large = 1 << 16
	if cap(w.symbols) > large {
		w.symbols, w.heap = nil, nil
	}
	w.ids, w.starts, w.pieces = nil, nil, [2][]piece{}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.workers) < maxWorkers {
		t.workers = append(t.workers, w)
	}
}

func (t *hf) Encode(dst []int32, text []byte) ([]int32, error) {
	ids, _, err := t.encode(dst, nil, text, false)
	return ids, err
}

func (t *hf) EncodeSpans(ids []int32, starts []int, text []byte) ([]int32, []int, error) {
	return t.encode(ids, starts, text, true)
}

func (t *hf) encode(ids []int32, starts []int, text []byte, spans bool) ([]int32, []int, error) {
	if len(text) > maxText {
		return ids, starts, ErrLong
	}
	if !utf8.Valid(text) {
		at := badByte(text)
		return ids, starts, fmt.Errorf("%w: byte %d is 0x%02x", ErrUTF8, at, text[at])
	}
	w := t.worker()
	defer t.release(w)
	w.ids, w.starts, w.spans, w.last = ids, starts, spans, 0
	w.track = spans || t.origins
	left := newBudget(len(text))
	err := t.raw.split(w.u, text, &left.steps, func(from, to int, tok *added) error {
		s := span{text: text[from:to], base: from, left: left}
		if tok != nil {
			w.add(&s, tok.id, 0)
			return nil
		}
		return w.segment(s)
	})
	if err != nil {
		return ids, starts, err
	}
	return w.ids, w.starts, nil
}

// badByte is the first byte of text that is not UTF-8.
func badByte(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

// segment encodes the text between added tokens.
func (w *worker) segment(s span) error {
	t := w.t
	for _, n := range t.norms {
		var err error
		if s, err = n.normalize(s, w.track); err != nil {
			return err
		}
	}
	return t.normal.split(w.u, s.text, &s.left.steps, func(from, to int, tok *added) error {
		part := s
		if from > 0 || to < len(s.text) {
			part = s.slice(from, to)
		}
		if tok != nil {
			w.add(&part, tok.id, 0)
			return nil
		}
		return w.cut(part)
	})
}

// cut encodes normalized text that has no added tokens.
func (w *worker) cut(s span) error {
	m := w.t.model
	if scan := w.t.scan; scan != nil {
		for i := 0; i < len(s.text); {
			end := scan.next(w.u, s.text, i)
			w.word(m, &s, i, end)
			i = end
		}
		return nil
	}
	in, out := append(w.pieces[0][:0], piece{span: s, first: s.at(0) == 0}), w.pieces[1]
	for _, p := range w.t.pre {
		out = out[:0]
		for _, one := range in {
			var err error
			if out, err = p.split(w, one, out); err != nil {
				return err
			}
		}
		in, out = out, in
	}
	for i := range in {
		w.words(m, &in[i].span, 0, len(in[i].text))
	}
	w.pieces = [2][]piece{in, out}
	return nil
}
