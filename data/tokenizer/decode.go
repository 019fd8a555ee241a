package tokenizer

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder turns tokens, spelled as in the vocabulary, into pieces of text. It may change the slice tokens.
type decoder interface {
	decode(tokens []string) []string
}

func (t *hf) Decode(ids []int32) []byte        { return t.decode(ids, true) }
func (t *hf) DecodeSpecial(ids []int32) []byte { return t.decode(ids, false) }

func (t *hf) decode(ids []int32, clean bool) []byte {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		s := t.Token(id)
		if tok := t.added[id]; tok != nil {
			if s = tok.spelled; clean && t.specials[tok.content] {
				s = ""
			}
		}
		if s != "" {
			tokens = append(tokens, s)
		}
	}
	if len(t.decoders) == 0 {
		return []byte(strings.Join(tokens, " "))
	}
	for _, d := range t.decoders {
		tokens = d.decode(tokens)
	}
	var b bytes.Buffer
	for _, s := range tokens {
		b.WriteString(s)
	}
	return b.Bytes()
}

// each is a decoder that converts every token on its own; i is the token's index.
type each func(i int, token string) string

func (f each) decode(tokens []string) []string {
	for i, s := range tokens {
		tokens[i] = f(i, s)
	}
	return tokens
}

// byteLevelDecoder turns letters back into the bytes that they stand for (byteAlphabet). A token that contains any
// other character is left as it is. Joined bytes that are not UTF-8 become U+FFFD.
type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(tokens []string) []string {
	var b strings.Builder
	for _, s := range tokens {
		if text, ok := fromLetters(s); ok {
			b.WriteString(text)
		} else {
			b.WriteString(s)
		}
	}
	return []string{lossy(b.String())}
}

// lossy replaces each broken character in s by U+FFFD. A broken character is the start of a UTF-8 sequence, as far as
// it is valid, whose rest is missing. Source: Unicode Standard 3.9, U+FFFD substitution.
func lossy(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = brokenOff(s)
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// brokenOff returns the number of bytes at the start of s that are an incomplete character; at least 1.
func brokenOff(s string) int {
	n, low, high := 0, byte(0x80), byte(0xbf) // n: most continuation bytes
	switch c := s[0]; {
	case c >= 0xc2 && c <= 0xdf:
		n = 1
	case c >= 0xe0 && c <= 0xef:
		n = 2
		switch c {
		case 0xe0:
			low = 0xa0
		case 0xed:
			high = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		n = 3
		switch c {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	}
	i := 1
	for ; i < len(s) && i <= n && s[i] >= low && s[i] <= high; i++ {
		low, high = 0x80, 0xbf
	}
	return i
}

// byteFallbackDecoder turns each run of tokens <0x00> to <0xFF> into the characters with these bytes. If the bytes of
// a run are not UTF-8, each byte becomes U+FFFD.
type byteFallbackDecoder struct{}

func (byteFallbackDecoder) decode(tokens []string) []string {
	var out []string
	var run []byte
	flush := func() {
		if len(run) > 0 && utf8.Valid(run) {
			out = append(out, string(run))
		} else {
			for range run {
				out = append(out, string(utf8.RuneError))
			}
		}
		run = run[:0]
	}
	for _, s := range tokens {
		if b, ok := byteToken(s); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, s)
	}
	flush()
	return out
}

// byteToken returns the byte that a token <0x00> to <0xFF> stands for; false: it is another token.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// fuse is a decoder that joins all tokens into one.
type fuse struct{}

func (fuse) decode(tokens []string) []string { return []string{strings.Join(tokens, "")} }

// stripEnds returns a decoder that removes a character from the ends of each token: up to start copies at the token's
// start, and up to stop copies at its end.
func stripEnds(character string, start, stop int) each {
	return func(_ int, s string) string {
		for n := 0; n < start && character != "" && strings.HasPrefix(s, character); n++ {
			s = s[len(character):]
		}
		for n := 0; n < stop && character != "" && strings.HasSuffix(s, character); n++ {
			s = s[:len(s)-len(character)]
		}
		return s
	}
}

// spacesOf returns a decoder that replaces letter by a space. If prefixed is set, it removes the
// letter from the first token instead, since encoding put one before the text.
func spacesOf(letter string, prefixed bool) each {
	return func(i int, s string) string {
		if i == 0 && prefixed {
			return strings.ReplaceAll(s, letter, "")
		}
		return strings.ReplaceAll(s, letter, " ")
	}
}

// endsOfWords is a decoder for vocabularies that mark the last token of a word by this suffix. It
// replaces the suffix by a space; in the last token of the text it removes the suffix.
type endsOfWords string

func (d endsOfWords) decode(tokens []string) []string {
	for i, s := range tokens {
		space := " "
		if i == len(tokens)-1 {
			space = ""
		}
		tokens[i] = strings.ReplaceAll(s, string(d), space)
	}
	return tokens
}

// replaced returns a decoder that applies the normalizer n to each token. A token is left as it is if n makes it too
// long.
func replaced(n normalizer) each {
	const most = 1 << 16 // bytes of a token
	return func(_ int, s string) string {
		left := newBudget(len(s))
		left.bytes = most
		if out, err := n.normalize(span{text: []byte(s), left: left}, false); err == nil {
			return string(out.text)
		}
		return s
	}
}

// decoder returns the decoder that p, a part of tokenizer.json, describes.
func (p *part) decoder() (decoder, error) {
	switch p.Type {
	case "ByteLevel":
		return byteLevelDecoder{}, nil
	case "ByteFallback":
		return byteFallbackDecoder{}, nil
	case "Fuse":
		return fuse{}, nil
	case "Strip":
		return stripEnds(p.Content, p.Start, p.Stop), nil
	case "BPEDecoder":
		if p.Suffix == "" {
			return nil, fmt.Errorf("%s.suffix: an empty string is not supported", p.where)
		}
		return endsOfWords(p.Suffix), nil
	case "Metaspace":
		if _, err := p.metaspaces(); err != nil {
			return nil, err
		}
		return spacesOf(p.Replacement, p.scheme() != "never"), nil
	case "Replace":
		n, err := p.replace()
		return replaced(n), err
	}
	return nil, p.unknown()
}
