package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

const byteVocab = 256

// ErrBinary is Encode's error for text that holds a NUL byte, whose id ends
// documents.
var ErrBinary = errors.New("a NUL byte: this is not text")

// Bytes is the byte-level vocabulary: the id of a byte is its value, and id 0,
// the byte no text holds, ends documents: so does EndOfText where a text spells
// it, as it does to other readers of the files. It is a Splitter.
func Bytes() Tokenizer { return byteLevel{} }

var endOfText = []byte(EndOfText)

type byteLevel struct{}

func (t byteLevel) Encode(dst []int32, text []byte) ([]int32, error) {
	if bytes.IndexByte(text, 0) >= 0 {
		return dst, ErrBinary
	}
	for {
		plain, rest, found := bytes.Cut(text, endOfText)
		n := len(dst)
		dst = append(dst, make([]int32, len(plain))...)
		for i, b := range plain {
			dst[n+i] = int32(b)
		}
		if !found {
			return dst, nil
		}
		dst, text = append(dst, 0), rest
	}
}

func (t byteLevel) EncodeSpans(ids []int32, starts []int, text []byte) ([]int32, []int, error) {
	n := len(ids)
	ids, err := t.Encode(ids, text)
	if err != nil {
		return ids, starts, err
	}
	at := 0
	for _, id := range ids[n:] {
		starts = append(starts, at)
		if at++; id == 0 {
			at += len(endOfText) - 1
		}
	}
	return ids, starts, nil
}

// Split leaves the end of text that may be the beginning of EndOfText.
func (byteLevel) Split(text []byte) int {
	for n := min(len(text), len(endOfText)-1); n > 0; n-- {
		if bytes.HasPrefix(endOfText, text[len(text)-n:]) {
			return len(text) - n
		}
	}
	return len(text)
}

func (byteLevel) AddSpecial(ids []int32) []int32     { return ids }
func (t byteLevel) Decode(ids []int32) []byte        { return t.decode(ids, "") }
func (t byteLevel) DecodeSpecial(ids []int32) []byte { return t.decode(ids, EndOfText) }

// decode is the text of ids with end in place of the token that ends a text.
func (byteLevel) decode(ids []int32, end string) []byte {
	text := make([]byte, 0, len(ids))
	for _, id := range ids {
		switch {
		case id == 0:
			text = append(text, end...)
		case id > 0 && id < byteVocab:
			text = append(text, byte(id))
		default:
			text = append(text, '<')
			text = strconv.AppendInt(text, int64(id), 10)
			text = append(text, '>')
		}
	}
	return text
}

func (byteLevel) Token(id int32) string {
	switch {
	case id == 0:
		return EndOfText
	case id > 0 && id < byteVocab:
		return string(byteAlphabet[id])
	}
	return ""
}

func (byteLevel) TokenID(token string) (int32, bool) {
	id, ok := byteLevelVocab[token]
	return int32(id), ok
}

func (byteLevel) IsSpecial(id int32) bool { return id == 0 }
func (byteLevel) VocabSize() int          { return byteVocab }
func (byteLevel) BOS() (int32, bool)      { return 0, false }
func (byteLevel) EOS() (int32, bool)      { return 0, true }
func (byteLevel) ID() string              { return "bytes-2" }
func (byteLevel) Files() map[string][]byte {
	return map[string][]byte{
		"tokenizer.json":        indented(newTokenizerFile(byteLevelVocab)),
		"tokenizer_config.json": indented(newTokenizerConfig()),
	}
}

// byteLevelVocab is the vocabulary as tokenizer.json spells it.
var byteLevelVocab = func() map[string]int {
	v := map[string]int{EndOfText: 0}
	for b, r := range byteAlphabet {
		if b != 0 {
			v[string(r)] = b
		}
	}
	return v
}()

// byteAlphabet is the letter that stands for each byte in the files of
// byte-level vocabularies: a printable Latin-1 letter for itself, the others
// counted up from U+0100. Source: GPT-2, bytes_to_unicode.
var byteAlphabet = func() (letters [byteVocab]rune) {
	next := rune(byteVocab)
	for b := range rune(byteVocab) {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' {
			letters[b] = b
			continue
		}
		letters[b] = next
		next++
	}
	return letters
}()

func indented(v any) []byte {
	b := new(bytes.Buffer)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("tokenizer: " + err.Error()) // strings and numbers always encode
	}
	return b.Bytes()
}
