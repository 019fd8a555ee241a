package data

import (
	"bytes"

	"mt/jinja"
)

// Flags of a document, as they are kept in the token cache.
const (
	flagOpenEnd      uint64 = 1 << iota // a supervised turn does not end with a special token, or a text not with EOS
	flagDoubledBOS                      // it begins with two BOS
	flagMissingEOS                      // flagOpenEnd, where it is not just white space that follows the special token
	flagLeftThinking                    // the template left out thoughts
	flagLeftText                        // the template left out text of a message
	flagLeftCalls                       // the template left out tools or calls of them
	flagVerbatim                        // of a pair: it is of texts, which no template writes
	flagPromptCut                       // of a pair: the prompt alone ends with other tokens than it has before an answer
)

// flagSameRow says of a document that it stands in the row of the document before it: a row of ids may
// hold several.
const flagSameRow uint64 = 1 << 15

// idFlags are the flags that take part in a data set's ID, which checkpoints compare. They
// are those that there were when the ID was defined; later flags must not change IDs.
const idFlags = flagOpenEnd | flagDoubledBOS

// piece appends the tokens of text and an EOS. Where sup is set, the tokens from byte from
// on and the EOS are supervised.
func (e *encoder) piece(text string, from int, sup bool) (err error) {
	first := len(e.ids)
	if e.ids, e.starts, err = e.tok.EncodeSpans(e.ids, e.starts[:0], []byte(text)); err != nil {
		return err
	}
	e.labs = ignored(e.labs, len(e.ids)-len(e.labs))
	if sup {
		e.supervise(first, jinja.Span{From: from, To: len(text)})
	}
	if e.around.eos == IgnoreIndex {
		return nil
	}
	e.ids, e.labs = append(e.ids, e.around.eos), append(e.labs, IgnoreIndex)
	if sup {
		e.labs[len(e.labs)-1] = e.around.eos
	}
	return nil
}

// verbatim sets e.ids to a prompt and its completion, one directly after the other, with EOS
// at the end.
func (e *encoder) verbatim(v *conversation) error {
	if v.tools != nil {
		return defaultLayout.noTools()
	}
	e.begin()
	var prompt, answer string
	for _, m := range v.messages {
		_, text, err := plainTurn(m, "default")
		switch {
		case err != nil:
			return err
		case roleOf(m) == "assistant":
			answer = text
		case roleOf(m) == "system":
			prompt += text + "\n"
		default:
			prompt += text
		}
	}
	if answer == "" {
		return nil // then nothing is supervised
	}
	err := e.piece(prompt+answer, len(prompt), true)
	e.whole()
	return err
}

// doubled is flagDoubledBOS where e.ids begin with two BOS, else 0.
func (e *encoder) doubled() uint64 {
	if bos := e.around.bos; bos != IgnoreIndex && len(e.ids) > 1 && e.ids[0] == bos && e.ids[1] == bos {
		return flagDoubledBOS
	}
	return 0
}

// unended is flagOpenEnd where a supervised turn does not end with a special token, together
// with flagMissingEOS where none comes before the white space at its end either. Many
// templates end a turn with a special token and a line break, and supervise both.
func (e *encoder) unended() (flags uint64) {
	if e.spec.TrainOnPrompt { // everything is one supervised turn, which may end with one token of white space
		n := len(e.ids)
		if !e.tok.IsSpecial(e.ids[n-1]) && !e.tok.IsSpecial(e.ids[n-2]) {
			flags = flagOpenEnd | e.endOf(n)
		}
		return flags
	}
	for i, l := range e.labs {
		ends := i+1 == len(e.labs) || e.labs[i+1] == IgnoreIndex
		if l != IgnoreIndex && ends && !e.special(l) {
			flags |= flagOpenEnd | e.endOf(i+1)
		}
	}
	return flags
}

// endOf is flagMissingEOS where the supervised tokens before place end do not end with a
// special token, nor with one and white space after it. Else it is 0.
func (e *encoder) endOf(end int) uint64 {
	for i := end - 1; i >= 0 && e.labs[i] != IgnoreIndex; i-- {
		if e.special(e.ids[i]) {
			return 0
		}
		if !blank(e.tok.Decode(e.ids[i : i+1])) {
			break
		}
	}
	return flagMissingEOS
}

// special tells whether id is a token that a turn may end with.
func (e *encoder) special(id int32) bool { return id == e.around.eos || e.tok.IsSpecial(id) }

// blank tells whether text is nothing but white space.
func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }
