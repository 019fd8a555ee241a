package tokenizer

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

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
