package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"unicode/utf8"
)

// ErrUTF8 is Encode's error for text that is not UTF-8. A tokenizer.json describes only UTF-8 text.
var ErrUTF8 = errors.New("this is not UTF-8 text")

// ErrLong is Encode's error for a text that is too long for one call.
var ErrLong = errors.New("a text of more than 256 MiB; cut it into several")

// ErrGrown is Encode's error for a text that the normalizers make many times longer.
var ErrGrown = errors.New("the normalizers of tokenizer.json make this text far too long")

const maxText = 256 << 20

// span is a text, and where each of its bytes comes from. The origin of a byte is the offset, in the text that the
// caller gave, of the character that the byte came from. Without origins, byte i came from offset base+i.
type span struct {
	text   []byte
	origin []int
	base   int
	left   *budget
}

// budget limits the work that one call of Encode may still do. A hostile text or tokenizer.json then cannot take any
// amount of time or memory.
type budget struct {
	steps int // steps of regular expressions and of the search for added tokens
	bytes int // bytes that one normalizer or pre-tokenizer may write
}

// newBudget returns the budget for a text of n bytes. It is far more than published vocabularies
// need.
func newBudget(n int) *budget {
	return &budget{steps: 1<<20 + 200*n, bytes: min(1<<16+32*n, 2*maxText)}
}

// at returns the origin of byte i: the offset, in the caller's text, of the character that the byte
// came from. If i is the length of s.text, at returns the offset of the text's end; if origins are
// recorded, it returns the last byte's origin instead.
func (s *span) at(i int) int {
	switch {
	case s.origin == nil:
		for i > 0 && i < len(s.text) && !utf8.RuneStart(s.text[i]) {
			i--
		}
		return s.base + i
	case i < len(s.origin):
		return s.origin[i]
	case len(s.origin) > 0:
		return s.origin[len(s.origin)-1]
	}
	return s.base
}

// slice returns the bytes [from, to) of s as a span, with their origins.
func (s *span) slice(from, to int) span {
	out := span{text: s.text[from:to], base: s.base + from, left: s.left}
	if s.origin != nil {
		out.origin, out.base = s.origin[from:to], s.at(from)
	}
	return out
}

// hf is a tokenizer read from tokenizer.json.
type hf struct {
	model *bpe
	norms []normalizer
	pre   []preTokenizer
	// scan cuts a text into words in one pass, if cutting with a known pattern and BPE are the only steps. nil:
	// the tokenizer has other steps.
	scan *scanner

	added    map[int32]*added
	addedIDs map[string]int32
	specials map[string]bool // contents of special tokens
	names    map[string]any  // named tokens as chat templates see them, see Named
	order    [2][]string     // contents of special tokens, and of the others, in the order of the files
	// lastAdded is the largest id of an added token; -1: none. addedBytes is the length of all added tokens'
	// contents together.
	lastAdded, addedBytes int
	// raw finds added tokens in the original text, and normal finds those that are searched in the normalized
	// text.
	raw, normal *trie
	decoders    []decoder // empty: tokens are joined with spaces
	post        []postProcessor

	origins  bool  // ids depend on the origins of pieces, so origins are always kept
	bos, eos int32 // -1: none
	size     int
	id       string
	files    map[string][]byte

	mu      sync.Mutex
	workers []*worker
}

// maxWorkers is the largest number of idle workers that are kept between calls of Encode.
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

// release returns w to the idle workers for later calls. Its large buffers are freed.
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

// badByte returns the offset of the first byte of text that is not UTF-8.
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

// segment encodes a text that stands between added tokens of the original text: it normalizes the text and looks for
// added tokens of the normalized text.
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

// cut encodes normalized text that contains no added tokens: it cuts the text into words and encodes each.
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

// postProcessor holds the ids that AddSpecial puts before and after the ids of a text.
type postProcessor struct {
	before, behind []int32
}

func (t *hf) AddSpecial(ids []int32) []int32 {
	for _, p := range t.post {
		if len(p.before)+len(p.behind) == 0 {
			continue
		}
		out := make([]int32, 0, len(p.before)+len(ids)+len(p.behind))
		ids = append(append(append(out, p.before...), ids...), p.behind...)
	}
	return ids
}

func (t *hf) Token(id int32) string {
	if tok := t.added[id]; tok != nil {
		return tok.content
	}
	if id < 0 || int(id) >= len(t.model.tokens) {
		return ""
	}
	return t.model.tokens[id]
}

func (t *hf) TokenID(token string) (int32, bool) {
	if id, ok := t.addedIDs[token]; ok {
		return id, true
	}
	id, ok := t.model.ids[token]
	return id, ok
}

func (t *hf) IsSpecial(id int32) bool {
	tok := t.added[id]
	return tok != nil && t.specials[tok.content]
}

func (t *hf) VocabSize() int { return t.size }

func (t *hf) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

func (t *hf) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

func (t *hf) ID() string { return t.id }

func (t *hf) Files() map[string][]byte { return maps.Clone(t.files) }

// postProcessor returns the post-processor that p describes.
func (t *hf) postProcessor(p *part) (postProcessor, error) {
	switch p.Type {
	case "ByteLevel": // for offsets only
		return postProcessor{}, nil
	case "TemplateProcessing":
		return t.template(p)
	case "BertProcessing", "RobertaProcessing":
		return t.around(p)
	}
	return postProcessor{}, p.unknown()
}

// template returns the postProcessor for p, which has the type TemplateProcessing. Its ids are the
// tokens that p's template for a single text puts around the text.
func (t *hf) template(p *part) (out postProcessor, err error) {
	texts := 0
	for i, raw := range p.Single {
		var piece struct {
			SpecialToken *struct{ ID string }
			Sequence     *struct{ ID string }
		}
		where := fmt.Sprintf("%s.single[%d]", p.where, i)
		if err := json.Unmarshal(raw, &piece); err != nil {
			return out, fmt.Errorf("%s: %w", where, err)
		}
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A":
			texts++
		case piece.SpecialToken != nil:
			var tok struct{ IDs []int64 }
			name := piece.SpecialToken.ID
			if err := json.Unmarshal(p.SpecialTokens[name], &tok); err != nil {
				return out, fmt.Errorf("%s: special_tokens has no ids of %q", where, name)
			}
			for _, id := range tok.IDs {
				if err := t.known(where, id); err != nil {
					return out, err
				}
				if texts == 0 {
					out.before = append(out.before, int32(id))
				} else {
					out.behind = append(out.behind, int32(id))
				}
			}
		default:
			return out, fmt.Errorf("%s: it is %s, neither a special token nor the text A", where, shorten(raw))
		}
	}
	if texts != 1 {
		return out, fmt.Errorf("%s.single: the text A is in it %d times, not once", p.where, texts)
	}
	return out, nil
}

// around returns the postProcessor for p, which is BERT's or RoBERTa's processor. These put the
// token cls before a text and sep after it.
func (t *hf) around(p *part) (out postProcessor, err error) {
	for _, v := range []struct {
		key string
		raw json.RawMessage
		to  *[]int32
	}{{"cls", p.Cls, &out.before}, {"sep", p.Sep, &out.behind}} {
		var token string
		var id int64
		if err := json.Unmarshal(v.raw, &[]any{&token, &id}); err != nil {
			return out, fmt.Errorf("%s.%s: it is %s, not a token and its id", p.where, v.key, shorten(v.raw))
		}
		if err := t.known(p.where+"."+v.key, id); err != nil {
			return out, err
		}
		*v.to = append(*v.to, int32(id))
	}
	return out, nil
}

// known returns an error if no token has this id. `where` is the path of the id in tokenizer.json, for the error.
func (t *hf) known(where string, id int64) error {
	if id < 0 || id >= maxID || t.Token(int32(id)) == "" {
		return fmt.Errorf("%s: no token has the id %d", where, id)
	}
	return nil
}
