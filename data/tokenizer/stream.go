package tokenizer

import "unicode/utf8"

// Stream decodes tokens one at a time, for printing them as they come. Bytes of
// a character that is not complete are held back.
type Stream struct {
	t    Tokenizer
	held []byte
}

// NewStream starts a text.
func NewStream(t Tokenizer) *Stream { return &Stream{t: t} }

// Next is the text that id completes, "" while a character is incomplete. Bytes
// that are no UTF-8 come as they are.
func (s *Stream) Next(id int32) string {
	s.held = append(s.held, s.t.Decode([]int32{id})...)
	n := len(s.held) - incomplete(s.held)
	out := string(s.held[:n])
	s.held = append(s.held[:0], s.held[n:]...)
	return out
}

// Flush is what was held back: the bytes of a character that never was
// completed.
func (s *Stream) Flush() string {
	out := string(s.held)
	s.held = s.held[:0]
	return out
}

// incomplete is how many bytes at the end of b are the start of a character.
func incomplete(b []byte) int {
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
