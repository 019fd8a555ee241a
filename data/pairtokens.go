package data

import (
	"slices"
	"strings"

	"mt/jinja"
)

// pair sets e.ids to the chosen document of a pair and then the rejected one, e.labs to their
// labels, and e.cut to where the second begins. Each is the prompt with an answer. The answer
// begins where the tokens of the prompt alone, with what the template writes before an answer,
// and those of either document part; only answers are supervised. Source: TRL's DPOTrainer.
func (e *encoder) pair(p *pair) (flags uint64, err error) {
	e.paused = e.paused[:0]
	var prompt []int32
	var sides [2][]int32
	if p.text != nil {
		flags = flagVerbatim
		prompt, sides, err = e.textSides(p.text)
	} else {
		flags, prompt, sides, err = e.chatSides(p)
	}
	if err != nil {
		return 0, err
	}
	n := len(prompt)
	for _, side := range sides {
		n = min(n, agreeing(prompt, side, equal))
	}
	if n < len(prompt) {
		flags |= flagPromptCut
	}
	var ids, labs []int32
	for _, side := range sides {
		e.ids = side
		e.labs = append(ignored(e.labs[:0], n), side[n:]...)
		if supervised(e.labs) == 0 {
			return 0, errNoAnswer
		}
		flags |= e.unended()
		ids, labs = append(ids, e.ids...), append(labs, e.labs...)
	}
	e.ids, e.labs, e.cut = ids, labs, len(sides[0])
	return flags, nil
}

// agreeing is how many elements at the start of a and b are the same.
func agreeing[E any](a, b []E, same func(a, b E) bool) int {
	n := min(len(a), len(b))
	for i := range n {
		if !same(a[i], b[i]) {
			return i
		}
	}
	return n
}

func equal[E comparable](a, b E) bool { return a == b }

// textSides are the tokens of a prompt and of the two texts that follow it, each with EOS at
// its end.
func (e *encoder) textSides(t *textPair) (prompt []int32, sides [2][]int32, err error) {
	if prompt, err = e.beginning(t.prompt); err != nil {
		return nil, sides, err
	}
	for i, answer := range t.answers {
		if sides[i], err = e.beginning(t.prompt + answer); err != nil {
			return nil, sides, err
		}
		eos, n := e.around.eos, len(sides[i])
		if ends := answer != "" && n > 0 && sides[i][n-1] == eos; eos != IgnoreIndex && !ends {
			sides[i] = append(sides[i], eos)
		}
	}
	return prompt, sides, nil
}

// beginning are the tokens of a text, with what the tokenizer puts before it.
func (e *encoder) beginning(text string) ([]int32, error) {
	return e.tok.Encode(slices.Clone(e.around.before), []byte(text))
}

// chatSides are the tokens of a prompt, up to where the answer begins, and of the prompt with
// each of its answers, as the template or layout writes them.
func (e *encoder) chatSides(p *pair) (flags uint64, prompt []int32, sides [2][]int32, err error) {
	form := &e.spec.chat
	layout := form.layout
	if form.tmpl == nil && layout == nil && p.asked.plain {
		layout = defaultLayout
	}
	if form.tmpl == nil && layout == nil {
		return 0, nil, sides, form.err
	}
	if form.tmpl == nil {
		if prompt, err = e.askByLayout(layout, p.asked); err != nil {
			return 0, nil, sides, err
		}
		for i, v := range p.answers {
			if err := e.layOut(layout, v); err != nil {
				return 0, nil, sides, err
			}
			sides[i] = slices.Clone(e.ids)
		}
		return 0, prompt, sides, nil
	}
	out, _, err := e.writeAny(p.asked, e.asked)
	if err != nil {
		return 0, nil, sides, err
	}
	if prompt, err = e.tok.Encode(nil, []byte(out.Text)); err != nil {
		return 0, nil, sides, err
	}
	for i, v := range p.answers {
		out, given, err := e.writeAny(v, e.told)
		if err != nil {
			return 0, nil, sides, err
		}
		if sides[i], err = e.tok.Encode(nil, []byte(out.Text)); err != nil {
			return 0, nil, sides, err
		}
		sides[i] = e.closed(given, out, sides[i], agreeing(prompt, sides[i], equal))
		flags |= out.left
	}
	return flags, prompt, sides, nil
}

// closed is ids, the tokens of a conversation with its answer, the first of which are the
// prompt's. Where the template ends the answer with the marker of the next turn, that marker is
// appended, as to a single answer.
func (e *encoder) closed(v *conversation, out written, ids []int32, first int) []int32 {
	last := len(v.messages) - 1
	end := len(ids)
	for end > first && !e.special(ids[end-1]) && blank(e.tok.Decode(ids[end-1:end])) {
		end--
	}
	if end == first || e.tmpl.Marks() || roleOf(v.messages[last]) != "assistant" {
		return ids
	}
	own := func(t jinja.Turn) bool { return t.Message == last && strings.TrimSpace(out.Text[t.To:]) == "" }
	if !slices.ContainsFunc(out.Turns, own) || e.endsTurn(strings.TrimSpace(out.Text), ids[end-1]) {
		return ids
	}
	if marker := e.nextMarker(v); marker != IgnoreIndex {
		return append(ids, marker)
	}
	return ids
}
