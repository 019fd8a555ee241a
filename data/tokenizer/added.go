package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// added is an added token, such as <|im_end|>: it is searched in the whole text, before the text is cut into words.
type added struct {
	id         int32
	content    string
	spelled    string // the spelling that is searched: the normalized content if normalized is set
	singleWord bool   // matches only at word boundaries
	lstrip     bool   // also matches the white space before the token
	rstrip     bool   // also matches the white space after the token
	normalized bool   // searched in the normalized text instead of the original
}

// trie finds added tokens in a text. It is a tree of the tokens' bytes. It finds the leftmost
// match, and among matches at the same offset the longest.
type trie struct {
	first  [256]int32       // node that each first byte leads to; 0: none
	next   map[uint64]int32 // node that a byte leads to from another node; the key is node<<8|byte
	tokens map[int32]*added // token that ends at each node
	single []byte           // distinct first bytes of all tokens
	long   int              // bytes of the longest token
	nodes  int32
}

// newTrie returns a trie without tokens.
func newTrie() *trie {
	return &trie{next: map[uint64]int32{}, tokens: map[int32]*added{}}
}

// add adds the token tok, which matches the text spelled. If another token with this spelling was added before, add
// does nothing.
func (t *trie) add(spelled string, tok *added) {
	if spelled == "" {
		return
	}
	at := int32(0)
	for i := range len(spelled) {
		b := spelled[i]
		to := t.step(at, b)
		if to == 0 {
			t.nodes++
			if to = t.nodes; at == 0 {
				t.first[b] = to
				t.single = append(t.single, b)
			} else {
				t.next[uint64(at)<<8|uint64(b)] = to
			}
		}
		at = to
	}
	if t.tokens[at] == nil {
		t.tokens[at] = tok
	}
	t.long = max(t.long, len(spelled))
}

func (t *trie) step(at int32, b byte) int32 {
	if at == 0 {
		return t.first[b]
	}
	return t.next[uint64(at)<<8|uint64(b)]
}

// longest returns the longest token at the start of text, and its length in bytes; tok is nil if
// none matches. For each byte read it subtracts one from steps.
func (t *trie) longest(text []byte, steps *int) (tok *added, size int) {
	at := int32(0)
	for i, b := range text {
		*steps--
		if at = t.step(at, b); at == 0 {
			break
		}
		if found := t.tokens[at]; found != nil {
			tok, size = found, i+1
		}
	}
	return tok, size
}

// find returns the first token in text that begins at the offset from or later, and the token's
// range [start, end). If there is none, or if steps (the work still allowed) falls below 0, tok is
// nil.
func (t *trie) find(text []byte, from int, steps *int) (start, end int, tok *added) {
	for i := from; i < len(text) && *steps >= 0; i++ {
		if len(t.single) == 1 {
			n := bytes.IndexByte(text[i:], t.single[0])
			if n < 0 {
				break
			}
			i += n
		} else if t.first[text[i]] == 0 {
			continue
		}
		if tok, n := t.longest(text[i:], steps); tok != nil {
			return i, i + n, tok
		}
	}
	return 0, 0, nil
}

// split cuts text at the added tokens and calls f for each piece in order. If the piece is a token,
// tok is the token; for text between tokens tok is nil. As in `tokenizers`, a token that takes the
// white space beside it (lstrip, rstrip) may overlap the next token.
func (t *trie) split(u *unicodeTable, text []byte, steps *int, f func(from, to int, tok *added) error) error {
	done := 0
	for at := 0; len(t.single) > 0; {
		start, end, tok := t.find(text, at, steps)
		if *steps < 0 {
			return ErrSteps
		}
		if tok == nil {
			break
		}
		at = end
		if tok.singleWord && (wordBefore(u, text, start) || wordAt(u, text, end)) {
			continue
		}
		if tok.lstrip {
			start = done + len(bytes.TrimRightFunc(text[min(done, start):start], isSpace))
		}
		switch {
		case !tok.rstrip:
		case end < done: // inside white space that the previous token has taken
			end = done
		default:
			end = len(text) - len(bytes.TrimLeftFunc(text[end:], isSpace))
		}
		if done < start {
			if err := f(done, start, nil); err != nil {
				return err
			}
		}
		if err := f(start, end, tok); err != nil {
			return err
		}
		done = end
	}
	if done < len(text) {
		return f(done, len(text), nil)
	}
	return nil
}

func wordBefore(u *unicodeTable, text []byte, i int) bool {
	if i == 0 {
		return false
	}
	r, _ := utf8.DecodeLastRune(text[:i])
	return u.of(r)&classWord != 0
}

func wordAt(u *unicodeTable, text []byte, i int) bool {
	if i == len(text) {
		return false
	}
	r, _ := decodeRune(text[i:])
	return u.of(r)&classWord != 0
}

// touches reports whether a token in text ends at offset i, begins there, or extends across it. A
// text must not be cut at such an offset.
func (t *trie) touches(text []byte, i int) bool {
	var steps int // bounded by Split
	for from := max(0, i-t.long); from <= i; from++ {
		if tok, n := t.longest(text[from:], &steps); tok != nil && from+n >= i {
			return true
		}
	}
	return false
}

const (
	maxAdded    = 512     // bytes of one added token
	maxAllAdded = 8 << 20 // bytes of all added tokens together, since each takes memory
)

// readAdded reads raw, the list added_tokens of a tokenizer.json, into t.
func (t *hf) readAdded(raw []byte) error {
	t.added, t.addedIDs, t.specials = map[int32]*added{}, map[string]int32{}, map[string]bool{}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var all []addedToken
	err := jsonArray(raw, func(n int, value []byte) error {
		f := addedToken{ID: -1}
		if err := json.Unmarshal(value, &f); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		if err := f.check(); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		return fmt.Errorf("added_tokens%w", err)
	}
	return t.addTokens(all)
}

// check returns an error if the added token is too long or its id is out of range.
func (f *addedToken) check() error {
	switch {
	case len(f.Content) > maxAdded:
		return fmt.Errorf("its content is longer than %d bytes", maxAdded)
	case f.ID < 0 || f.ID >= maxID:
		return fmt.Errorf("the id of %q is %d, and ids go from 0 to %d", f.Content, f.ID, maxID-1)
	}
	return nil
}

// addTokens adds tokens, and replaces existing added tokens with the same content. As in `tokenizers`, the ids in the
// file do not count: a token that is in the vocabulary keeps that id, and any other token gets the next free id.
func (t *hf) addTokens(all []addedToken) error {
	known := make([]addedToken, 0, len(all))
	for _, f := range all {
		if f.Content == "" {
			continue
		}
		if t.addedBytes += len(f.Content); t.addedBytes > maxAllAdded {
			return fmt.Errorf("added_tokens: they are longer than %d bytes together", maxAllAdded)
		}
		known = append(known, f)
		if f.Special && !t.specials[f.Content] {
			t.specials[f.Content] = true
			t.order[0] = append(t.order[0], f.Content)
		}
	}
	for _, f := range known {
		tok := added{content: f.Content, spelled: f.Content, singleWord: f.SingleWord, lstrip: f.LStrip, rstrip: f.RStrip, normalized: f.Normalized}
		id, ok := t.TokenID(f.Content)
		if !ok {
			id = int32(max(t.lastAdded+1, len(t.model.ids)))
		}
		if tok.id = id; id >= maxID {
			return fmt.Errorf("added_tokens: ids go from 0 to %d", maxID-1)
		}
		t.added[id], t.addedIDs[f.Content] = &tok, id
		t.lastAdded = max(t.lastAdded, int(id))
		if !t.specials[f.Content] {
			t.order[1] = append(t.order[1], f.Content)
		}
	}
	return nil
}

// index builds the tries that find added tokens: one for the original and one for the normalized text. If two tokens
// have the same spelling, a special token wins, then the token that was added first.
func (t *hf) index() error {
	t.raw, t.normal = newTrie(), newTrie()
	for _, content := range slices.Concat(t.order[0], t.order[1]) {
		tok := t.added[t.addedIDs[content]]
		if !tok.normalized {
			t.raw.add(content, tok)
			continue
		}
		s := span{text: []byte(content), left: newBudget(len(content))}
		for _, n := range t.norms {
			var err error
			if s, err = n.normalize(s, false); err != nil {
				return fmt.Errorf("added_tokens: %q: %w", content, err)
			}
		}
		tok.spelled = string(s.text)
		t.normal.add(tok.spelled, tok)
	}
	t.size = len(t.model.tokens)
	for id := range t.added {
		t.size = max(t.size, int(id)+1)
	}
	return nil
}
