package data

import (
	"fmt"

	"mt/data/template"
)

// Flags of a document, in the cache.
const (
	flagMissingEOS uint64 = 1 << iota // a supervised turn does not end with a special token, a text not with EOS
	flagDoubledBOS                    // it begins with two BOS
)

// piece appends the tokens of text, of which those from byte from on are
// supervised, and an EOS that is too where sup is set.
func (e *encoder) piece(text string, from int, sup bool) (err error) {
	first := len(e.ids)
	if e.ids, e.starts, err = e.tok.EncodeSpans(e.ids, e.starts[:0], []byte(text)); err != nil {
		return err
	}
	e.labs = ignored(e.labs, len(e.ids)-len(e.labs))
	if sup {
		e.supervise(first, template.Span{From: from, To: len(text)})
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
	lead := ""
	for i, m := range v.messages[:last+1] {
		role, text, err := plainTurn(m)
		if err != nil {
			return err
		}
		switch role {
		case "system":
			err, lead = e.piece(lead+"System: "+text, 0, false), "\n"
		case "user":
			err, lead = e.piece(lead+"Human: "+text, 0, false), "\n"
		case "assistant":
			const name = "Assistant:"
			err = e.piece(lead+name+text, len(lead+name), i >= v.from && text != "" && (!e.spec.MaskHistory || i == last) && !weightless(m))
		default:
			err = fmt.Errorf("template default knows no %s; use a chat template that does", role)
		}
		if err != nil {
			return err
		}
	}
	e.whole()
	return nil
}

// plainTurn is a message that is text alone.
func plainTurn(m any) (role, text string, err error) {
	o := m.(*template.Object)
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

// unended is flagMissingEOS where a supervised turn does not end with a special
// token.
func (e *encoder) unended() uint64 {
	if e.spec.TrainOnPrompt { // turns are one; behind the last token there may be white space
		if n := len(e.ids); !e.tok.IsSpecial(e.ids[n-1]) && !e.tok.IsSpecial(e.ids[n-2]) {
			return flagMissingEOS
		}
		return 0
	}
	for i, l := range e.labs {
		ends := i+1 == len(e.labs) || e.labs[i+1] == IgnoreIndex
		if l != IgnoreIndex && ends && l != e.around.eos && !e.tok.IsSpecial(l) {
			return flagMissingEOS
		}
	}
	return 0
}
