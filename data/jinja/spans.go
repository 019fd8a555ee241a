package jinja

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// markHint ends the errors of templates whose supervised text cannot be found; it says what to do.
const markHint = "; mark what the model learns in the template with {%% generation %%}...{%% endgeneration %%} around an assistant's text"

// SupervisedSpans renders the conversation and gives the text that the model
// learns.
//
// Where the template marks text with {% generation %}, that is what those blocks
// wrote, one Turn for each block: a message may have several or none, and a block
// may be of no message (NoMessage). Else there is one Turn for each message of role
// assistant, in their order: what the loop over messages wrote while it stood at the
// message, but for the header that add_generation_prompt would have written
// (found by rendering the conversation up to an answer with and without it)
// and but for white space at the end: an end-of-turn token belongs to it, a line
// break behind that does not. Text that a loop inside wrote at another message, such as
// the result of a tool, is not the assistant's: a message around it has a Turn for each
// piece that is left. A template that writes assistant messages in another way is an error
// that says how to mark them.
func (t *Template) SupervisedSpans(vars map[string]any) (*Rendered, []Turn, error) {
	out, err := t.Render(vars)
	if err != nil {
		return nil, nil, err
	}
	messages, err := conversation(vars)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t.name, err)
	}
	var turns []Turn
	if t.marks {
		turns, err = out.marked(messages)
	} else {
		turns, err = t.fromLoop(out, vars, messages)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return out, turns, nil
}

// conversation is the messages of vars.
func conversation(vars map[string]any) ([]any, error) {
	v, err := (&intake{}).value(vars["messages"], 0)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	return list, nil
}

// roleAt is the role of message i, nil where there is none.
func roleAt(messages []any, i int) any {
	if i < 0 {
		return nil
	}
	o, _ := messages[i].(*Object)
	role, _ := o.Get("role")
	return role
}

// assistants are the places of the messages of role assistant.
func assistants(messages []any) []int {
	var at []int
	for i := range messages {
		if roleAt(messages, i) == "assistant" {
			at = append(at, i)
		}
	}
	return at
}

// marked are the turns of the generation spans, one for each span that is not empty. A span
// belongs to the message at which a loop stood around it. Where none did, as a template may
// mark the end of the text after its loop, it belongs to the assistant message with the mark
// before it. Where no loop stood around any span and there are as many spans as assistant
// messages, they belong to each other in order. Else it is not known to which message a span
// belongs.
func (out *Rendered) marked(messages []any) ([]Turn, error) {
	asked := assistants(messages)
	var turns []Turn
	loose := 0
	for _, g := range out.Generation {
		if g.From == g.To {
			continue
		}
		turn := Turn{Message: out.standing(g), Span: g}
		if turn.Message == NoMessage {
			loose++
		}
		turns = append(turns, turn)
	}
	if len(turns) == 0 && len(asked) > 0 {
		return nil, fmt.Errorf("the template's {%% generation %%} blocks write nothing into the text, as inside a filter, though there are %d assistant messages", len(asked))
	}
	if loose == len(turns) && loose == len(asked) {
		for i := range turns {
			turns[i].Message = asked[i]
		}
		return turns, nil
	}
	last := NoMessage
	for i, t := range turns {
		switch {
		case t.Message == NoMessage:
			turns[i].Message = last
		case roleAt(messages, t.Message) == "assistant":
			last = t.Message
		}
	}
	return turns, nil
}

// standing is the message at which a loop stood while all of g was written.
func (out *Rendered) standing(g Span) int {
	for _, t := range out.Turns {
		if t.Message >= 0 && t.From <= g.From && g.To <= t.To {
			return t.Message
		}
	}
	return NoMessage
}

// fromLoop are the assistants' turns that the loop over messages wrote, without their
// headers and without what loops inside them wrote at other messages. A header depends on
// the role of the message before it (after a tool's result some templates write none), and
// is found once for each such role.
func (t *Template) fromLoop(out *Rendered, vars map[string]any, messages []any) ([]Turn, error) {
	asked := assistants(messages)
	if len(asked) == 0 {
		return nil, nil
	}
	if len(out.Turns) == 0 {
		return nil, fmt.Errorf("the template writes no message inside a loop over messages, so it is not known which text is whose" + markHint)
	}
	headers := map[any]opening{}
	var turns []Turn
	for _, message := range slices.Backward(asked) {
		turn, err := out.turnOf(message)
		if err != nil {
			return nil, err
		}
		before := roleAt(messages, message-1)
		open, ok := headers[before]
		if !ok {
			if open, err = t.header(vars, messages, message); err != nil {
				return nil, err
			}
			if end := open.endIn(out, turn); end > turn.From {
				open.written = out.Text[turn.From:end]
			}
			headers[before] = open
		}
		own, err := t.answerIn(out, turn, open, vars, messages)
		if err != nil {
			return nil, err
		}
		parts := []Turn{{Message: message, Span: own}}
		if others := out.inside(turn); others != nil {
			parts = t.without(others, parts[0], out, vars, messages, open)
		}
		turns = append(turns, parts...)
	}
	slices.SortStableFunc(turns, func(a, b Turn) int { return a.Message - b.Message })
	return turns, t.checkOthers(out, turns, vars, messages)
}

// turnOf is the turn of a message, which must have exactly one that is more than white space.
func (out *Rendered) turnOf(message int) (Turn, error) {
	var found []Turn
	for _, t := range out.Turns {
		if t.Message == message && strings.TrimFunc(out.Text[t.From:t.To], isSpace) != "" {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Turn{}, fmt.Errorf("the template writes nothing while its loop stands at message %d, an assistant's: it may merge turns"+markHint, message)
	}
	return Turn{}, fmt.Errorf("the template writes message %d, an assistant's, in %d places"+markHint, message, len(found))
}

// opening is what a template writes before an answer.
type opening struct {
	header string // what add_generation_prompt adds
	tail   string // all that stands behind the last message; it ends with header
	prompt string // the whole text up to the answer; "": not known
	// written is the part of the answer's turn that stands in the prompt too. It is "" where
	// the conversation does not begin with the prompt, or the turn begins behind the prompt.
	written string
}

// endIn returns where the prompt ends in the turn of its answer, or -1 where out does not begin
// with the prompt or the prompt ends elsewhere. White space between prompt and turn does not
// matter.
func (o opening) endIn(out *Rendered, turn Turn) int {
	n := len(o.prompt)
	if n == 0 || n > turn.To || !strings.HasPrefix(out.Text, o.prompt) || n < turn.From && !isBlank(out.Text[n:turn.From]) {
		return -1
	}
	return max(n, turn.From)
}

// header is the opening after all messages before the given one.
func (t *Template) header(vars map[string]any, messages []any, message int) (opening, error) {
	open, err := t.promptOf(vars, messages[:message])
	if err != nil || message == 0 {
		// Some templates want a user's message there, or another number of messages.
		if whole, e := t.promptOf(vars, messages); e == nil {
			whole.prompt = ""
			return whole, nil
		}
	}
	return open, err
}

// withMessages is vars with other messages, and with add_generation_prompt as prompt says.
func withMessages(vars map[string]any, messages []any, prompt bool) map[string]any {
	with := make(map[string]any, len(vars)+2)
	maps.Copy(with, vars)
	with["messages"], with[promptFlag] = messages, prompt
	return with
}

// promptOf is the opening of an answer to messages.
func (t *Template) promptOf(vars map[string]any, messages []any) (open opening, err error) {
	with, err := t.Render(withMessages(vars, messages, true))
	if err != nil {
		return open, err
	}
	end := 0
	for _, turn := range with.Turns {
		end = max(end, turn.To)
	}
	open.tail, open.prompt = with.Text[end:], with.Text
	if t.endsWithPrompt {
		open.header = with.Text[with.last:]
		return open, nil
	}
	without, err := t.Render(withMessages(vars, messages, false))
	if err != nil {
		return open, err
	}
	if rest, ok := strings.CutPrefix(with.Text, without.Text); ok {
		open.header = rest
		return open, nil
	}
	// The flag also removes something, such as an EOS after the last message. The header
	// is then what comes after the last turn.
	open.header = open.tail
	return open, nil
}

// answerIn is the part of a turn that the model writes. Where the turn does not have the opening
// as its own text, the answer begins where the message's own prompt ends. Where the prompt
// differs from the turn in white space alone, the answer begins where other content would.
func (t *Template) answerIn(out *Rendered, turn Turn, open opening, vars map[string]any, messages []any) (Span, error) {
	own, err := out.answer(turn, open, roleAt(messages, turn.Message-1))
	if err == nil || turn.Message == 0 {
		return own, err
	}
	from := -1
	if asked, e := t.promptOf(vars, messages[:turn.Message]); e == nil {
		from = asked.endIn(out, turn)
	}
	if from < 0 {
		if from = t.contentAt(out, turn, open, vars, messages); from < 0 {
			return own, err
		}
	}
	return Span{from, max(from, turn.From+len(strings.TrimRightFunc(out.Text[turn.From:turn.To], isSpace)))}, nil
}

// contentAt returns where the content of a turn begins, found by rendering other content in its
// place; or -1 where the text before the content is, white space aside, neither the header nor
// its first lines or tokens.
func (t *Template) contentAt(out *Rendered, turn Turn, open opening, vars map[string]any, messages []any) int {
	o, _ := messages[turn.Message].(*Object)
	if content, _ := o.Get("content"); o == nil {
		return -1
	} else if _, ok := content.(string); !ok {
		return -1
	}
	other := o.clone()
	other.Set("content", foreignMark)
	with := slices.Clone(messages)
	with[turn.Message] = other
	probe, err := t.Render(withMessages(vars, with, false))
	if err != nil {
		return -1
	}
	there, err := probe.turnOf(turn.Message)
	if err != nil {
		return -1
	}
	before, _, found := strings.Cut(probe.Text[there.From:there.To], foreignMark)
	if !found || !strings.HasPrefix(out.Text[turn.From:turn.To], before) {
		return -1
	}
	for part := open.header; part != ""; part = cutLast(part) {
		if bare := squeezed(part); bare != "" && bare == squeezed(before) {
			return turn.From + len(before)
		}
	}
	return -1
}

// squeezed is s without its white space.
func squeezed(s string) string { return strings.Join(strings.FieldsFunc(s, isSpace), "") }

// cutLast is a header without its last line or token.
func cutLast(header string) string {
	return header[:strings.LastIndexAny(header[:len(header)-1], "\n>]")+1]
}

// answer is the part of a turn that the model writes: what comes after the opening, without
// the white space at the end. Where the turn has only the header's first lines or tokens, it
// is what comes after those: a template may write a closed thinking block in the header
// alone. A turn without any of it, behind an answer or a tool's result, goes on with the
// model's turn before it.
func (out *Rendered) answer(turn Turn, open opening, before any) (Span, error) {
	text := out.Text[turn.From:turn.To]
	end := turn.From + len(strings.TrimRightFunc(text, isSpace))
	if open.written != "" && strings.HasPrefix(text, open.written) {
		from := turn.From + len(open.written)
		return Span{from, max(from, end)}, nil
	}
	if tail := strings.TrimLeftFunc(open.tail, isSpace); len(open.tail) > len(open.header) && tail != "" {
		if rest, ok := strings.CutPrefix(strings.TrimLeftFunc(text, isSpace), tail); ok {
			from := turn.To - len(rest)
			return Span{from, max(from, end)}, nil
		}
	}
	if strings.TrimFunc(open.header, isSpace) == "" {
		return Span{turn.From, end}, nil
	}
	for part := open.header; part != ""; part = cutLast(part) {
		if strings.TrimFunc(part, isSpace) == "" {
			break
		}
		at := strings.Index(text, part)
		if at >= 0 && (part == open.header || strings.TrimFunc(text[:at], isSpace) == "") {
			from := turn.From + at + len(part)
			return Span{from, max(from, end)}, nil
		}
	}
	if before == "assistant" || before == "tool" {
		return Span{turn.From, end}, nil
	}
	return Span{}, fmt.Errorf("the text of message %d, an assistant's, has no %q, which add_generation_prompt writes before an answer"+markHint, turn.Message, open.header)
}

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
