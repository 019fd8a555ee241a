package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"mt/data"
	"mt/tokenizer"
)

// sample is a row as it is trained on.
type sample struct {
	Row        int          `json:"row"` // in file order
	IDs        []int32      `json:"input_ids"`
	Labels     []int32      `json:"labels"` // data.IgnoreIndex: not supervised
	Tokens     []string     `json:"tokens,omitempty"`
	Supervised int64        `json:"supervised_tokens"`
	Pieces     []data.Piece `json:"documents"`
}

// newSample is row i of set; tok may be nil.
func newSample(set *data.Dataset, tok tokenizer.Tokenizer, i int) sample {
	r := set.Row(i)
	s := sample{Row: i, IDs: r.IDs, Labels: r.Labels, Supervised: r.Supervised(), Pieces: set.Pieces(i)}
	if s.Labels == nil {
		s.Labels = r.IDs
	}
	first := 0
	for _, p := range s.Pieces {
		s.Tokens = append(s.Tokens, tokenTexts(tok, r.IDs[first:first+int(p.Tokens)])...)
		first += int(p.Tokens)
	}
	return s
}

// tokenTexts is the text that each of a document's ids adds to those before it. A
// character that several tokens make is in the text of the last of them.
func tokenTexts(tok tokenizer.Tokenizer, ids []int32) []string {
	out := make([]string, len(ids))
	if tok == nil {
		for i, id := range ids {
			out[i] = fmt.Sprintf("%d ", id)
		}
		return out
	}
	shown, next := 0, 0 // ids[shown:next] were shown last, ids[next:] were not yet
	for i := range ids {
		before, after := tok.DecodeSpecial(ids[shown:next]), tok.DecodeSpecial(ids[shown:i+1])
		whole := bytes.HasPrefix(after, before) && !cutCharacter(after)
		if !whole && i+1 < len(ids) && i+1-next < maxPieces {
			continue
		}
		out[i] = string(bytes.TrimPrefix(after, before))
		shown, next = next, i+1
	}
	return out
}

// maxPieces is more tokens than any character is made of.
const maxPieces = 12

// cutCharacter tells whether text ends inside a character.
func cutCharacter(text []byte) bool {
	r, _ := utf8.DecodeLastRune(text)
	return r == utf8.RuneError && len(text) > 0
}

// paint marks what is supervised: by colour, or without colours by brackets.
type paint struct{ colour bool }

// The colours of a terminal (ECMA-48): green is supervised, grey is not; every
// other token is underlined, so that their borders show.
const (
	green     = "\x1b[32m"
	grey      = "\x1b[90m"
	underline = "\x1b[4m"
	plain     = "\x1b[0m"
)

func (p paint) legend() string {
	if p.colour {
		return green + "supervised" + plain + ", " + grey + "not supervised" + plain + "; every other token is " + underline + "underlined" + plain
	}
	return "⟦supervised⟧; tokens are divided by ·"
}

// writeSamples shows rows, with what the marks mean.
func (p paint) writeSamples(w io.Writer, rows []sample) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, p.legend()); err != nil {
		return err
	}
	for _, s := range rows {
		if err := p.writeSample(w, s); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// writeSample shows a row, document by document.
func (p paint) writeSample(w io.Writer, s sample) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nrow %d: %s tokens, %s supervised\n", s.Row, humanize.Comma(int64(len(s.IDs))), humanize.Comma(s.Supervised))
	first := 0
	for _, piece := range s.Pieces {
		end := first + int(piece.Tokens)
		fmt.Fprintf(&b, "--- %s\n", place(piece))
		if piece.Side == "" {
			p.tokens(&b, s, first, first, end)
		} else {
			p.side(&b, s, piece.Side, first, end)
		}
		first = end
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// side shows the document [first, end) of a pair: with the chosen answer the prompt, which the
// rejected one has too.
func (p paint) side(b *strings.Builder, s sample, side string, first, end int) {
	answer := first
	for answer < end && s.Labels[answer] == data.IgnoreIndex {
		answer++
	}
	if side == "chosen" {
		b.WriteString("prompt: ")
		p.tokens(b, s, first, first, answer)
	}
	b.WriteString(side + ": ")
	p.tokens(b, s, first, answer, end)
}

// place says where a piece of a document was read, and what the chat template
// left out of it.
func place(p data.Piece) string {
	at := fmt.Sprintf("%s (%s), %s tokens", p.Where, p.Format, humanize.Comma(p.Total))
	if p.Side != "" {
		at = fmt.Sprintf("%s (pair %d, %s), %s tokens", p.Where, p.Document, p.Side, humanize.Comma(p.Total))
	}
	switch {
	case p.Tokens < p.Total && p.Side != "":
		at += fmt.Sprintf(", cut to %s", humanize.Comma(p.Tokens))
	case p.Tokens < p.Total:
		at = fmt.Sprintf("%s (%s), tokens %s to %s of %s", p.Where, p.Format, humanize.Comma(p.From), humanize.Comma(p.From+p.Tokens-1), humanize.Comma(p.Total))
	}
	var left []string
	for _, l := range []struct {
		what string
		is   bool
	}{{"text", p.LeftText}, {"tools or calls", p.LeftCalls}, {"thoughts", p.LeftThinking}} {
		if l.is {
			left = append(left, l.what)
		}
	}
	if left == nil {
		return at
	}
	return at + "; the template leaves out " + strings.Join(left, ", ")
}

// tokens shows the tokens [first, end) of the document of s that begins with token document. Its first token is
// predicted from nothing, so it has no loss whatever its label says.
func (p paint) tokens(b *strings.Builder, s sample, document, first, end int) {
	open := false
	for i := first; i < end; i++ {
		supervised := i > document && s.Labels[i] != data.IgnoreIndex
		text := visible(s.Tokens[i])
		switch {
		case text == "": // the first tokens of a character are shown with its last
		case p.colour:
			p.coloured(b, text, supervised, i%2 == 1)
		case supervised != open:
			b.WriteString(map[bool]string{true: "⟦", false: "⟧"}[supervised])
			b.WriteString(text)
			open = supervised
		default:
			if i > first {
				b.WriteString("·")
			}
			b.WriteString(text)
		}
	}
	if open {
		b.WriteString("⟧")
	}
	b.WriteString("\n")
}

// coloured paints each line of a token by itself: a colour that goes on over the end of
// a line would fill the rest of that line.
func (p paint) coloured(b *strings.Builder, text string, supervised, odd bool) {
	style := grey
	if supervised {
		style = green
	}
	if odd {
		style += underline
	}
	for line := range strings.Lines(text) {
		body, broken := strings.CutSuffix(line, "\n")
		if body != "" {
			b.WriteString(style + body + plain)
		}
		if broken {
			b.WriteString("\n")
		}
	}
}

// visible replaces what a terminal would obey or hide: a line's end is marked, and
// control characters are written as code points.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			b.WriteString("⏎\n")
		case r == '\t':
			b.WriteString("→")
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, "\\x%02x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
