package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Tokenizer is a vocabulary with its two directions. All methods may be called
// from several goroutines at once.
type Tokenizer interface {
	// Encode appends the ids of text to dst. Added tokens in the text are
	// recognised as the tokenizer's file says; nothing is put around it.
	Encode(dst []int32, text []byte) ([]int32, error)
	// EncodeSpans is Encode that also appends to starts, for each id, the byte of
	// text where what it stands for starts. The ids are always those of Encode;
	// starts never fall.
	EncodeSpans(ids []int32, starts []int, text []byte) ([]int32, []int, error)
	// AddSpecial is ids with what belongs around a text: the token that begins
	// one, the token that ends one, or nothing. It does not change ids, and
	// returns them where there is nothing to add.
	AddSpecial(ids []int32) []int32
	// Decode is the text of ids. Special tokens are dropped; so are ids without a
	// text, which Bytes prints as "<id>".
	Decode(ids []int32) []byte
	// DecodeSpecial is Decode with special tokens kept.
	DecodeSpecial(ids []int32) []byte
	// Token is id as the vocabulary writes it, "" where there is no such id.
	Token(id int32) string
	// TokenID is the id of what the vocabulary writes as token.
	TokenID(token string) (id int32, ok bool)
	// IsSpecial tells whether Decode drops id.
	IsSpecial(id int32) bool
	// VocabSize is one more than the largest id.
	VocabSize() int
	// BOS is the id that begins a text; false where there is none.
	BOS() (int32, bool)
	// EOS is the id that ends a document; false where there is none.
	EOS() (int32, bool)
	// ID names the encoding: equal IDs encode equally. For cache keys.
	ID() string
	// Files are to be put beside a saved model, by name.
	Files() map[string][]byte
}

// Splitter is a Tokenizer that can encode a long text piece by piece.
type Splitter interface {
	Tokenizer
	// Split is the length of a prefix of text that may be encoded apart from
	// all that follows it, in text or later. It is 0 where there is none.
	Split(text []byte) int
}

// EndOfText is how the token that ends a document is written.
const EndOfText = "<|endoftext|>"

// Stream decodes tokens one at a time, so that they can be printed as they come. It holds
// back the bytes of a character that is not complete.
type Stream struct {
	t    Tokenizer
	ids  []int32 // the last tokens, since how one prints may depend on those before it
	seen int     // how many of ids have printed in full
	sent int     // bytes of the text of ids that have been returned
}

// maxHeld is how many tokens Stream holds back for one character, which has at
// most four bytes.
const maxHeld = 8

// maxQuiet is how many tokens that print nothing Stream keeps.
const maxQuiet = 64

// NewStream starts a text, or continues one that ends with the tokens before. These may
// decide whether the next token prints a space, and a character that is incomplete at their
// end comes with the token that completes it.
func NewStream(t Tokenizer, before ...int32) *Stream {
	s := &Stream{t: t}
	for n := min(maxHeld, len(before)); n > 0; n-- { // begin, if possible, where a character begins
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

// Next is the text that is complete with id, "" while a character is incomplete. Bytes that
// are not UTF-8 come as the tokenizer decodes them.
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
	if n == len(text) { // keep only the tokens since the last time, on which the next may depend, if they print
		if size := len(s.t.Decode(s.ids[s.seen:])); size > 0 || len(s.ids) > maxQuiet {
			s.ids, s.sent = append(s.ids[:0], s.ids[s.seen:]...), size
		}
		s.seen = len(s.ids)
	}
	return out
}

// Flush is the text that was held back: the bytes of a character that was never completed.
func (s *Stream) Flush() string {
	text := s.t.Decode(s.ids)
	out := string(text[min(s.sent, len(text)):])
	s.ids, s.seen, s.sent = s.ids[:0], 0, 0
	return out
}

// incomplete is how many bytes at the end of b are the start of a character, or are U+FFFD,
// which stands for one.
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
