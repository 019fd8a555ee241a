package data

import (
	"bytes"
	"fmt"

	"mt/jinja"
)

// Flags of a document, in the cache.
const (
	flagOpenEnd      uint64 = 1 << iota // the last token of a supervised turn is not special, that of a text not EOS
	flagDoubledBOS                      // it begins with two BOS
	flagMissingEOS                      // flagOpenEnd, and not for white space alone
	flagLeftThinking                    // the template left out thoughts,
	flagLeftText                        // text of a message,
	flagLeftCalls                       // tools or calls of them
)

// idFlags are the flags that are part of a data set's ID, which checkpoints have:
// those that were there when it was made up.
const idFlags = flagOpenEnd | flagDoubledBOS

// piece appends the tokens of text, of which those from byte from on are
// supervised, and an EOS that is too where sup is set.
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

// verbatim puts a prompt and its completion one after the other, and EOS at the
// end.
func (e *encoder) verbatim(v *conversation) error {
	e.begin()
	var prompt, answer string
	for _, m := range v.messages {
		_, text, err := plainTurn(m)
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
		return nil // nothing is supervised
	}
	err := e.piece(prompt+answer, len(prompt), true)
	e.whole()
	return err
}

// layOut writes a conversation as LLaMA-Factory's template "default" does:
// System, Human and Assistant by name, EOS after each turn. Source:
// LLaMA-Factory, src/llamafactory/data/template.py.
func (e *encoder) layOut(v *conversation) error {
	e.begin()
	last := len(v.messages) - 1
	for last > 0 && roleOf(v.messages[last]) != "assistant" {
		last--
	}
	if _, err := e.layTurns(v, last); err != nil {
		return err
	}
	e.whole()
	return nil
}

// answerName is how layOut begins an answer.
const answerName = "Assistant:"

// layTurns writes the turns up to number last, and gives what comes before the
// next.
func (e *encoder) layTurns(v *conversation, last int) (lead string, err error) {
	for i, m := range v.messages[:last+1] {
		role, text, err := plainTurn(m)
		if err != nil {
			return "", err
		}
		switch role {
		case "system":
			err, lead = e.piece(lead+"System: "+text, 0, false), "\n"
		case "user":
			err, lead = e.piece(lead+"Human: "+text, 0, false), "\n"
		case "assistant":
			err = e.piece(lead+answerName+text, len(lead+answerName), i >= v.from && text != "" && (!e.spec.MaskHistory || i == last) && !weightless(m))
		default:
			err = fmt.Errorf("template default knows no %s; use a chat template that does", role)
		}
		if err != nil {
			return "", err
		}
	}
	return lead, nil
}

// plainTurn is a message that is text alone.
func plainTurn(m any) (role, text string, err error) {
	o := m.(*jinja.Object)
	if _, ok := o.Get("tool_calls"); ok {
		return "", "", fmt.Errorf("template default has no place for calls of functions; use a chat template that does")
	}
	content, _ := o.Get("content")
	text, _ = content.(string)
	return roleOf(m), text, nil
}

// doubled is flagDoubledBOS where e.ids begin with two BOS.
func (e *encoder) doubled() uint64 {
	if bos := e.around.bos; bos != IgnoreIndex && len(e.ids) > 1 && e.ids[0] == bos && e.ids[1] == bos {
		return flagDoubledBOS
	}
	return 0
}

// unended is flagOpenEnd where the last token of a supervised turn is not special,
// and flagMissingEOS where none is before white space either: many templates end a
// turn with a line break and mark it too.
func (e *encoder) unended() (flags uint64) {
	if e.spec.TrainOnPrompt { // all turns are one; white space ends it
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

// endOf is flagMissingEOS where the supervised tokens before number end do not
// end with a special one and white space.
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

// special tells whether a turn may end with id.
func (e *encoder) special(id int32) bool { return id == e.around.eos || e.tok.IsSpecial(id) }

// blank tells whether text is white space alone.
func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }
