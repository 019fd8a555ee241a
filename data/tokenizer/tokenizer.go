package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Tokenizer encodes text and decodes ids. All methods are safe for concurrent use.
type Tokenizer interface {
	// Encode appends the ids of text to dst. It recognises added tokens, such as <|im_end|>, in text as the
	// tokenizer's file says. It adds no special tokens around the text.
	Encode(dst []int32, text []byte) ([]int32, error)
	// EncodeSpans appends the same ids as Encode. For each id it also appends to starts the offset in text at
	// which the id's text starts; these offsets never decrease.
	EncodeSpans(ids []int32, starts []int, text []byte) ([]int32, []int, error)
	// AddSpecial returns ids with the special tokens that belong around a text, such as BOS and EOS. It does not
	// change ids, and returns ids itself if there is nothing to add.
	AddSpecial(ids []int32) []int32
	// Decode returns the text of ids without special tokens. An id without a text is dropped, except that Bytes
	// writes it as "<id>".
	Decode(ids []int32) []byte
	// DecodeSpecial returns the text of ids like Decode, but keeps special tokens.
	DecodeSpecial(ids []int32) []byte
	// Token returns id as the vocabulary spells it; "": there is no such id.
	Token(id int32) string
	// TokenID returns the id of a token, spelled as in the vocabulary; ok is false if there is no such token.
	TokenID(token string) (id int32, ok bool)
	// IsSpecial reports whether Decode drops id.
	IsSpecial(id int32) bool
	// VocabSize returns the largest id plus one.
	VocabSize() int
	// BOS returns the id that begins a text; false: none.
	BOS() (int32, bool)
	// EOS returns the id that ends a document; false: none.
	EOS() (int32, bool)
	// ID identifies the encoding, for cache keys: tokenizers with equal IDs encode equally.
	ID() string
	// Files returns the tokenizer's files to save beside a model, name to content.
	Files() map[string][]byte
}

// Splitter is a Tokenizer that can encode a long text piece by piece.
type Splitter interface {
	Tokenizer
	// Split returns the length of a prefix of text that can be encoded independently of all later text. 0: there is
	// none.
	Split(text []byte) int
}

// EndOfText is the spelling of the token that ends a document.
const EndOfText = "<|endoftext|>"

// Stream decodes tokens one at a time, for printing them as they are generated. It holds back the bytes of an
// incomplete character.
type Stream struct {
	t    Tokenizer
	ids  []int32 // the last tokens; the text of the next token may depend on them
	seen int     // number of ids that are printed in full
	sent int     // bytes of the text of ids that Next has returned
}

// maxHeld is the largest number of tokens that Stream holds back to complete one character. A character has at most
// four bytes.
const maxHeld = 8

// maxQuiet is the largest number of tokens without text that Stream keeps.
const maxQuiet = 64

// NewStream returns a Stream for a new text or, with before, for the continuation of a text that ends with these
// tokens. The tokens before may decide whether the next one begins with a space. An incomplete character at their end
// is returned together with the token that completes it.
func NewStream(t Tokenizer, before ...int32) *Stream {
	s := &Stream{t: t}
	for n := min(maxHeld, len(before)); n > 0; n-- { // prefer a start at a character boundary
		s.ids = slices.Clone(before[len(before)-n:])
		if !bytes.HasPrefix(t.Decode(s.ids), []byte(string(utf8.RuneError))) {
			break
		}
	}
	text := t.Decode(s.ids)
	s.seen, s.sent = len(s.ids), len(text)-incomplete(text)
	for s.seen > 0 && incomplete(t.Decode(s.ids[:s.seen])) > 0 {
		s.seen--
	}
	return s
}

// Next returns the text that the token id completes; "" while a character is incomplete. Bytes that are not UTF-8
// come as the tokenizer decodes them.
func (s *Stream) Next(id int32) string {
	s.ids = append(s.ids, id)
	text := s.t.Decode(s.ids)
	n := len(text)
	if len(s.ids)-s.seen < maxHeld {
		n -= incomplete(text)
	}
	n = max(n, s.sent)
	out := string(text[min(s.sent, n):n])
	s.sent = n
	if n == len(text) { // keep only the tokens printed by this call, since the next one may depend on them
		if size := len(s.t.Decode(s.ids[s.seen:])); size > 0 || len(s.ids) > maxQuiet {
			s.ids, s.sent = append(s.ids[:0], s.ids[s.seen:]...), size
		}
		s.seen = len(s.ids)
	}
	return out
}

// Flush returns the bytes held back for a character that was never completed, and ends the text.
func (s *Stream) Flush() string {
	text := s.t.Decode(s.ids)
	out := string(text[min(s.sent, len(text)):])
	s.ids, s.seen, s.sent = s.ids[:0], 0, 0
	return out
}

// incomplete returns how many bytes at the end of b belong to an incomplete character. U+FFFD at the end counts as
// incomplete, since decoders write it for the first bytes of a character.
func incomplete(b []byte) int {
	if cut := bytes.TrimRight(b, string(utf8.RuneError)); len(cut) < len(b) && utf8.Valid(b) {
		return len(b) - len(cut)
	}
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

const byteVocab = 256

// ErrBinary is the error of Bytes for text with a NUL byte, since id 0 ends documents.
var ErrBinary = errors.New("a NUL byte: this is not text")

// Bytes returns the byte-level vocabulary, whose tokens are bytes; it is a Splitter. The id of a byte is its value.
// Id 0 ends documents, and no text contains this byte. EndOfText in a text also becomes id 0, as with other programs
// that read the files of Bytes.
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

// Split returns the length of text without those last bytes that may be the beginning of EndOfText.
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

// decode returns the text of ids. end is written for id 0, the token that ends a document.
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

// byteLevelVocab is the vocabulary of Bytes as tokenizer.json spells it.
var byteLevelVocab = func() map[string]int {
	v := map[string]int{EndOfText: 0}
	for b, r := range byteAlphabet {
		if b != 0 {
			v[string(r)] = b
		}
	}
	return v
}()

// byteAlphabet has the letter by which the files of byte-level vocabularies write each byte. Printable Latin-1
// characters stand for themselves; the other bytes are numbered from U+0100 on. Source: GPT-2, bytes_to_unicode.
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
