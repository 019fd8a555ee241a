package tokenizer

import (
	"errors"
	"slices"
	"testing"
)

// FuzzLoad: any text is a tokenizer.json that can encode and decode, or an error.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(small("")))
	f.Add([]byte(small(`"normalizer": {"type": "Replace", "pattern": {"Regex": "(?<!a)[b-d&&\\p{L}]{1,3}+|x*?$"}, "content": "y"}`)))
	f.Add([]byte(small(`"added_tokens": [{"id": 7, "content": " ab", "lstrip": true, "single_word": true, "normalized": true}], "normalizer": {"type": "NFKC"}`)))
	readShapes(f, "testdata/shapes.json", func(s *shape, text []byte) {
		if len(text) < 12<<10 {
			f.Add(text)
		}
	})
	sample := "Hello  world, don't 'LL  12345!\n\n<x> a b ab▁x e\u0301 한국 \u00a0"
	f.Fuzz(func(t *testing.T, text []byte) {
		tok, err := parse(text)
		if err != nil {
			return
		}
		checkEncoding(t, tok, sample)
	})
}

// checkEncoding encodes text with all methods, which must agree, and decodes the ids.
func checkEncoding(t *testing.T, tok *hf, text string) {
	ids, err := tok.Encode(nil, []byte(text))
	if err != nil {
		if !errors.Is(err, ErrSteps) && !errors.Is(err, ErrGrown) && !errors.Is(err, ErrUTF8) {
			t.Fatal(err)
		}
		return
	}
	spans, starts, err := tok.EncodeSpans(nil, nil, []byte(text))
	if err != nil || !slices.Equal(ids, spans) || len(starts) != len(ids) || !slices.IsSorted(starts) {
		t.Fatalf("%q: ids %d, and with spans %d, %d, %v", text, ids, spans, starts, err)
	}
	if n := len(starts); n > 0 && (starts[0] < 0 || starts[n-1] > len(text)) {
		t.Fatalf("%q: starts %d", text, starts)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= tok.VocabSize() || tok.Token(id) == "" {
			t.Fatalf("%q: the id %d has no token", text, id)
		}
	}
	tok.Decode(tok.AddSpecial(ids))
	tok.DecodeSpecial(ids)
	s := NewStream(tok)
	for _, id := range ids {
		s.Next(id)
	}
	s.Flush()
}

// FuzzEncode: each kind of tokenizer encodes any text to the same ids, whether the text comes whole
// or is cut in two where Split allows it.
func FuzzEncode(f *testing.F) {
	var toks []*hf
	readShapes(f, "testdata/shapes.json", func(s *shape, text []byte) {
		tok, err := parse(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(len(toks)), s.Cases[len(s.Cases)-1].Text)
		toks = append(toks, tok)
	})
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		tok := toks[int(which)%len(toks)]
		checkEncoding(t, tok, text)
		split, ok := tok.splitter().(Splitter)
		whole, err := tok.Encode(nil, []byte(text))
		if !ok || err != nil {
			return
		}
		n := split.Split([]byte(text[:len(text)-len(text)/3]))
		got, err := tok.Encode(nil, []byte(text[:n]))
		if err == nil {
			got, err = tok.Encode(got, []byte(text[n:]))
		}
		if err != nil || !slices.Equal(got, whole) {
			t.Fatalf("%q: cut at %d %d, whole %d, %v", text, n, got, whole, err)
		}
	})
}
