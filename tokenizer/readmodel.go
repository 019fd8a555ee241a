package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxID bounds ids, which tables are indexed with.
const maxID = 1 << 22

// modelOptions are the small members of "model".
type modelOptions struct {
	Type         string   `json:"type"`
	Dropout      *float64 `json:"dropout"`
	Unk          *string  `json:"unk_token"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
}

// readModel reads "model". Where letters is set, words come to it as bytes.
func readModel(raw []byte, letters bool) (*bpe, error) {
	var o modelOptions
	var vocab, merges []byte
	rest := map[string][]byte{}
	err := jsonObject(raw, func(key string, value []byte) error {
		switch key {
		case "vocab":
			vocab = value
		case "merges":
			merges = value
		default:
			rest[key] = value
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := o.read(rest); err != nil {
		return nil, err
	}
	if err := o.check(merges != nil); err != nil {
		return nil, err
	}
	m := &bpe{unk: -1, fuseUnk: o.FuseUnk, ignoreMerges: o.IgnoreMerges, prefix: text(o.Prefix), suffix: text(o.Suffix)}
	if err := m.readVocab(vocab); err != nil {
		return nil, err
	}
	if o.Unk != nil {
		id, ok := m.ids[*o.Unk]
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in model.vocab", *o.Unk)
		}
		m.unk = id
	}
	m.tables(letters, o.ByteFallback)
	return m, m.readMerges(merges)
}

// read takes the members of "model" in.
func (o *modelOptions) read(members map[string][]byte) error {
	for key, raw := range members {
		one := append(append([]byte(`{"`+key+`":`), raw...), '}')
		if !json.Valid(one) { // a key that would have to be escaped: none of ours
			continue
		}
		if err := json.Unmarshal(one, o); err != nil {
			return fmt.Errorf("model.%s: %s is not of the right type", key, shorten(raw))
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// check refuses what is not read.
func (o *modelOptions) check(merges bool) error {
	switch {
	case o.Type == "" && !merges || o.Type != "" && o.Type != "BPE":
		return fmt.Errorf("model.type: %q is not read, only BPE is; give input_ids (JSONL) that another tool has made", o.Type)
	case o.Dropout != nil && *o.Dropout != 0:
		return fmt.Errorf("model.dropout: %g would make the ids random; set it to null", *o.Dropout)
	case o.ByteFallback && (text(o.Prefix) != "" || text(o.Suffix) != ""):
		return fmt.Errorf("model.byte_fallback: not together with continuing_subword_prefix or end_of_word_suffix")
	}
	return nil
}

func (m *bpe) readVocab(raw []byte) error {
	m.ids = make(map[string]int32, len(raw)/24)
	most := int32(-1)
	err := jsonObject(raw, func(token string, value []byte) error {
		id, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil || id >= maxID {
			return fmt.Errorf("the id of %q is %s, and ids go from 0 to %d", token, shorten(value), maxID-1)
		}
		m.ids[token] = int32(id)
		most = max(most, int32(id))
		return nil
	})
	if err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	m.tokens = make([]string, most+1)
	for token, id := range m.ids {
		if other := m.tokens[id]; other != "" {
			return fmt.Errorf("model.vocab: %q and %q have the same id %d", min(token, other), max(token, other), id)
		}
		m.tokens[id] = token
	}
	return nil
}

// tables fills in what can be computed from the vocabulary.
func (m *bpe) tables(letters, fallback bool) {
	m.raw = letters && m.prefix == "" && m.suffix == ""
	for b := range byteVocab {
		id, ok := m.ids[string(byteAlphabet[b])]
		m.letters[b] = id
		m.raw = m.raw && ok
		m.fallback[b] = -1
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok && fallback {
			m.fallback[b] = id
		}
	}
	for b := range utf8.RuneSelf {
		id, ok := m.ids[string(rune(b))]
		if !ok {
			id = -1
		}
		m.ascii[b] = id
	}
	m.sizes = make([]int32, len(m.tokens))
	for id, token := range m.tokens {
		m.sizes[id] = int32(m.sizeOf(int32(id), token))
		m.long = max(m.long, len(token))
	}
	_, ok := m.ids[metaspace]
	// An unknown character that vanished would join what a cut separates.
	ok = ok && (m.unk >= 0 || slices.Min(m.fallback[:]) >= 0)
	m.cuts = ok && !m.raw && !m.ignoreMerges && m.prefix == "" && m.suffix == ""
	m.joins = map[rune]bool{}
}

// sizeOf is how many bytes of text the token stands for, 0 where that is not known.
func (m *bpe) sizeOf(id int32, token string) int {
	switch {
	case m.prefix != "" || m.suffix != "" || id == m.unk:
		return 0
	case m.raw:
		text, _ := fromLetters(token)
		return len(text)
	}
	if b, ok := byteToken(token); ok && m.fallback[b] == id {
		return 1
	}
	return len(token)
}

func (m *bpe) readMerges(raw []byte) error {
	if raw == nil {
		raw = []byte("[]")
	}
	count := 0
	if err := jsonArray(raw, func(int, []byte) error { count++; return nil }); err != nil {
		return fmt.Errorf("model.merges%w", err)
	}
	m.pairs = newPairs(count)
	var both []byte
	rank := int32(0)
	err := jsonArray(raw, func(n int, value []byte) error {
		a, b, err := mergeOf(value)
		if err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		if a == "" && b == "" { // the first line of merges.txt
			return nil
		}
		left, okLeft := m.ids[a]
		right, okRight := m.ids[b]
		both = append(append(both[:0], a...), strings.TrimPrefix(b, m.prefix)...)
		id, ok := m.ids[string(both)]
		switch {
		case !okLeft:
			return fmt.Errorf("[%d]: %q is not in model.vocab", n, a)
		case !okRight:
			return fmt.Errorf("[%d]: %q is not in model.vocab", n, b)
		case !ok:
			return fmt.Errorf("[%d]: %q is not in model.vocab", n, both)
		}
		m.pairs.set(left, right, merge{rank, id})
		rank++
		m.join(both)
		return nil
	})
	if err != nil {
		return fmt.Errorf("model.merges%w", err)
	}
	return nil
}

// join notes that a merge makes token, so that no word may be cut inside of it.
func (m *bpe) join(token []byte) {
	for i := 1; m.cuts && i < len(token); {
		n := bytes.Index(token[i:], []byte(metaspace))
		if n < 0 {
			return
		}
		r, _ := utf8.DecodeLastRune(token[:i+n])
		m.joins[r] = true
		i += n + 1
	}
}

// mergeOf reads "a b" or ["a", "b"]; the first line of merges.txt gives nothing.
func mergeOf(raw []byte) (a, b string, err error) {
	if line, ok := jsonText(raw); ok {
		if strings.HasPrefix(line, "#version") {
			return "", "", nil
		}
		a, b, ok = strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return "", "", fmt.Errorf("%s is not two tokens with a space between them", shorten(raw))
		}
		return a, b, nil
	}
	var pair [2]string
	count := 0
	err = jsonArray(raw, func(n int, value []byte) error {
		s, ok := jsonText(value)
		if count++; !ok || n > 1 {
			return fmt.Errorf("%s is not two tokens", shorten(raw))
		}
		pair[n] = s
		return nil
	})
	if err == nil && count != 2 {
		err = fmt.Errorf("%s is not two tokens", shorten(raw))
	}
	return pair[0], pair[1], err
}
