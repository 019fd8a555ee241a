package jinja

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// markHint is advice that is appended to an error. The error says that the text to train on cannot
// be found in a template's output.
const markHint = "; mark what the model learns in the template with {%% generation %%}...{%% endgeneration %%} around an assistant's text"

// SupervisedSpans renders the conversation and returns the spans of text that the model is trained on.
//
// If the template uses {% generation %}, each non-empty block is one Turn. A message may have several Turns or
// none, and a block may belong to no message (NoMessage).
//
// Otherwise each message of role assistant has a Turn: the text that the loop over messages wrote for it. The Turn
// leaves out the header, which is found by rendering the conversation up to the answer with and without
// add_generation_prompt. It also leaves out white space at the end: an end-of-turn token is part of the Turn, a
// line break after the token is not. Text that an inner loop wrote for another message, such as the result of a
// tool, is left out too; the message then has one Turn for each remaining piece. Turns are in the order of the
// messages. A template that writes assistant messages in another way is an error that says how to mark them.
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

// conversation returns the messages in vars, converted to values that templates know.
func conversation(vars map[string]any) ([]any, error) {
	v, err := (&intake{}).value(vars["messages"], 0)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	return list, nil
}

// roleAt returns the role of message i, or nil if i is negative or the message has no role.
func roleAt(messages []any, i int) any {
	if i < 0 {
		return nil
	}
	o, _ := messages[i].(*Object)
	role, _ := o.Get("role")
	return role
}

// assistants returns the indices of the messages whose role is assistant.
func assistants(messages []any) []int {
	var at []int
	for i := range messages {
		if roleAt(messages, i) == "assistant" {
			at = append(at, i)
		}
	}
	return at
}

// marked returns one Turn for each span that a {% generation %} block wrote, unless the span is empty. The Turn's
// message is:
//
//   - the message that a loop was at while the span was written
//   - outside of loops, the last assistant message that an earlier span belongs to: a template may mark the end of
//     a text after its loop
//   - if no span was written in a loop, and there are as many spans as assistant messages: the messages in order
//   - otherwise NoMessage
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

// standing returns the index of the message that a loop was at while the template wrote all of the span g; NoMessage:
// there was none.
func (out *Rendered) standing(g Span) int {
	for _, t := range out.Turns {
		if t.Message >= 0 && t.From <= g.From && g.To <= t.To {
			return t.Message
		}
	}
	return NoMessage
}

// fromLoop returns the assistants' Turns that the loop over messages wrote, without headers (the text before an
// answer) and without text of other messages. A header depends on the role of the message before it: after a tool's
// result some templates write none. So fromLoop renders one header for each such role.
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

// turnOf returns the one Turn of this message that is not blank. It is an error if there is none, or more than one.
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

// opening is the text that a template writes before an answer, as found by rendering the conversation up to this
// answer.
type opening struct {
	header string // the text that add_generation_prompt adds
	tail   string // the text after the last message; it ends with header
	prompt string // the whole text up to the answer; "": unknown
	// written is the part of the prompt that lies inside the answer's turn. "": the text does not begin with the
	// prompt, or the turn begins after the prompt.
	written string
}

// endIn returns the offset in out.Text at which the prompt ends, if that is inside the answer's turn. White space
// between prompt and turn is ignored. It returns -1 if the text does not begin with the prompt, or the prompt ends
// outside of the turn.
func (o opening) endIn(out *Rendered, turn Turn) int {
	n := len(o.prompt)
	if n == 0 || n > turn.To || !strings.HasPrefix(out.Text, o.prompt) || n < turn.From && !isBlank(out.Text[n:turn.From]) {
		return -1
	}
	return max(n, turn.From)
}

// header returns the opening of the answer with index message: what the template writes before an answer that follows
// the earlier messages.
func (t *Template) header(vars map[string]any, messages []any, message int) (opening, error) {
	open, err := t.promptOf(vars, messages[:message])
	if err != nil || message == 0 {
		// Some templates fail for these messages, for instance because the user's is missing. The
		// opening that follows the whole conversation is then used, without its prompt.
		if whole, e := t.promptOf(vars, messages); e == nil {
			whole.prompt = ""
			return whole, nil
		}
	}
	return open, err
}

// withMessages returns a copy of vars with these messages, and with add_generation_prompt set to prompt.
func withMessages(vars map[string]any, messages []any, prompt bool) map[string]any {
	with := make(map[string]any, len(vars)+2)
	maps.Copy(with, vars)
	with["messages"], with[promptFlag] = messages, prompt
	return with
}

// promptOf returns the opening of an answer that follows messages.
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
	// The flag add_generation_prompt here also removes text, such as an EOS after the last message.
	// The header is then the text after the last turn.
	open.header = open.tail
	return open, nil
}

// answerIn returns the part of a turn that the model writes. It begins after the opening. If the turn does not
// contain the opening, the answer begins where the prompt of the earlier messages ends. If that prompt differs from
// the text in white space alone, the answer begins where the message's content begins (contentAt).
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

// contentAt returns the offset in out.Text at which the content of the turn's message begins. To find it, contentAt
// renders the conversation with a placeholder as this content. The text before the content must be the header, or the
// header's first lines or tokens, white space aside; otherwise contentAt returns -1.
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

// squeezed returns s without any white space, to compare texts that may differ in white space
// alone.
func squeezed(s string) string { return strings.Join(strings.FieldsFunc(s, isSpace), "") }

// cutLast returns a header without its last line, or without its last token if that ends with > or ]. header must not
// be empty.
func cutLast(header string) string {
	return header[:strings.LastIndexAny(header[:len(header)-1], "\n>]")+1]
}

// answer returns the part of a turn that the model writes: the text after the opening, without
// white space at the end. Some templates write a closed thinking block only in the header. The turn
// may then contain just the header's first lines or tokens, and the answer begins after them.
// `before` is the role of the message before. If it is assistant or tool, a turn without any part of
// the header continues the model's turn; otherwise that is an error.
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

// inside returns the turns of other messages that lie inside a turn, in order of position. Blank turns, and turns
// inside another returned turn, are left out.
func (out *Rendered) inside(turn Turn) (others []Turn) {
	for _, t := range out.Turns { // in the order in which they end, so inner turns come first
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

// without cuts others, the turns of other messages, out of the turn own, and returns the remaining
// pieces. A piece between two others is kept only if it also appears when the message is rendered
// alone. A second tool call does; the brackets around a list of results do not. The piece after the
// last of others begins at the message's content; without content it is dropped.
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

// alone returns the answer that the template writes for this message if the conversation ends with it; "": unknown,
// since the template fails or the answer cannot be found.
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

// foreignMark is a placeholder for a message's content. A test rendering with it shows where a
// template writes the content.
const foreignMark = "\ue000 \ue001"

// checkOthers returns an error if a turn contains the content of a message of another role. A template may write such
// a message without a loop over messages; its text then cannot be told from the assistant's, and the model would
// learn it.
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
		return nil // the template depends on the content, so the placeholder cannot be used
	}
	for _, turn := range other.Turns {
		if turn.Message >= 0 && roleAt(messages, turn.Message) == "assistant" && strings.Contains(other.Text[turn.From:turn.To], foreignMark) {
			return fmt.Errorf("the template writes what another message says into message %d, an assistant's, without a loop over these messages, so it is not known which text is whose"+markHint, turn.Message)
		}
	}
	return nil
}
