package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// inside are the turns of other messages inside a turn, in their order, without those that
// are inside one another and without white space alone.
func (out *Rendered) inside(turn Turn) (others []Turn) {
	for _, t := range out.Turns { // in the order in which they end: those inside come first
		if t == turn {
			break
		}
		if t.From < turn.From || t.To > turn.To || t.Message == turn.Message || isBlank(out.Text[t.From:t.To]) {
			continue
		}
		others = slices.DeleteFunc(others, func(o Turn) bool { return t.From <= o.From && o.To <= t.To })
		others = append(others, t)
	}
	slices.SortFunc(others, func(a, b Turn) int { return a.From - b.From })
	return others
}

func isBlank(s string) bool { return strings.TrimFunc(s, isSpace) == "" }

// without is the part own of a turn without the turns of others in it. What stands between
// two others is the message's where it also stands in what the template writes for the
// message alone: a second call does, the brackets of a list of results do not. What follows
// the last of them is the message's from its content on.
func (t *Template) without(others []Turn, own Turn, out *Rendered, vars map[string]any, messages []any, open opening) (parts []Turn) {
	alone := t.alone(own.Message, vars, messages, open)
	o, _ := messages[own.Message].(*Object)
	content, _ := o.Get("content")
	said, _ := content.(string)
	said = strings.TrimFunc(said, isSpace)
	at := own.From
	for i, other := range append(others, Turn{Span: Span{own.To, own.To}}) {
		part := Turn{Message: own.Message, Span: Span{at, min(other.From, own.To)}, Paused: i < len(others)}
		at = max(at, other.To)
		if part.From >= part.To {
			continue
		}
		piece := out.Text[part.From:part.To]
		switch bare := strings.TrimFunc(piece, isSpace); {
		case bare == "":
			continue
		case i == 0:
			part.Alone = alone
		case i < len(others) && !strings.Contains(alone, bare), i == len(others) && said == "":
			continue
		case i == len(others):
			part.From += max(strings.Index(piece, said), 0)
		}
		parts = append(parts, part)
	}
	return parts
}

// alone is what the template writes for a message where no message follows it, "" where
// that is not known.
func (t *Template) alone(message int, vars map[string]any, messages []any, open opening) string {
	out, err := t.Render(withMessages(vars, messages[:message+1], false))
	if err != nil {
		return ""
	}
	turn, err := out.turnOf(message)
	if err != nil {
		return ""
	}
	own, err := t.answerIn(out, turn, open, vars, messages[:message+1])
	if err != nil {
		return ""
	}
	return out.Text[own.From:own.To]
}

// foreignMark stands for the content of a message, to see where a template writes it.
const foreignMark = "\ue000 \ue001"

// checkOthers is an error where turns hold the content of another message than an
// assistant's, which the template writes there without a loop that stands at it.
func (t *Template) checkOthers(out *Rendered, turns []Turn, vars map[string]any, messages []any) error {
	marked := slices.Clone(messages)
	suspect := NoMessage
	for i, m := range messages {
		o, _ := m.(*Object)
		content, _ := o.Get("content")
		text, _ := content.(string)
		text = strings.TrimFunc(text, isSpace)
		if text == "" || roleAt(messages, i) == "assistant" ||
			slices.ContainsFunc(out.Turns, func(turn Turn) bool { return turn.Message == i }) ||
			!slices.ContainsFunc(turns, func(turn Turn) bool { return strings.Contains(out.Text[turn.From:turn.To], text) }) {
			continue
		}
		clone := o.clone()
		clone.Set("content", foreignMark)
		marked[i], suspect = clone, i
	}
	if suspect == NoMessage {
		return nil
	}
	other, err := t.Render(withMessages(vars, marked, false))
	if err != nil {
		return nil // the template wants something of the content, so nothing can be seen
	}
	for _, turn := range other.Turns {
		if turn.Message >= 0 && roleAt(messages, turn.Message) == "assistant" && strings.Contains(other.Text[turn.From:turn.To], foreignMark) {
			return fmt.Errorf("the template writes what another message says into message %d, an assistant's, without a loop over these messages, so it is not known which text is whose"+markHint, turn.Message)
		}
	}
	return nil
}
