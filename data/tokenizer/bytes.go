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
// the byte no text holds, ends documents. It is a Splitter.
func Bytes() Tokenizer { return byteLevel{} }

type byteLevel struct{}

func (byteLevel) Encode(dst []int32, text []byte) ([]int32, error) {
	if bytes.IndexByte(text, 0) >= 0 {
		return dst, ErrBinary
	}
	n := len(dst)
	dst = append(dst, make([]int32, len(text))...)
	for i, b := range text {
		dst[n+i] = int32(b)
	}
	return dst, nil
}

func (byteLevel) Decode(ids []int32) []byte {
	text := make([]byte, 0, len(ids))
	for _, id := range ids {
		switch {
		case id == 0:
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

func (byteLevel) VocabSize() int        { return byteVocab }
func (byteLevel) EOS() (int32, bool)    { return 0, true }
func (byteLevel) ID() string            { return "bytes-1" }
func (byteLevel) Split(text []byte) int { return len(text) }
func (byteLevel) vocab() map[string]int { return byteLevelVocab }
func (t byteLevel) Files() map[string][]byte {
	return map[string][]byte{
		"tokenizer.json":        indented(newTokenizerFile(t.vocab())),
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
