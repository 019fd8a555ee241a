package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"mt/data/jinja"
)

// pair is a prompt with a chosen and a rejected answer. If the three are texts to be concatenated,
// they are in text, and the other fields are unset. If they are conversations, text is nil, and
// asked and answers hold them.
type pair struct {
	text    *textPair
	asked   *conversation    // the prompt
	answers [2]*conversation // prompt and answer: chosen, rejected
}

// textPair is a pair as texts: prompt, then the chosen and the rejected answer.
type textPair struct {
	prompt  string
	answers [2]string
}

// The usual names of the columns of a row that is a pair.
const (
	chosenField   = "chosen"
	rejectedField = "rejected"
	questionField = "question"
)

// pairForm returns the form of a row that is a pair. The prompt has a field of its own, or is the common beginning of
// both answers, as in TRL. named holds the configured column names; columns that it leaves empty are recognised by
// their usual names.
func pairForm(named *columns, fields map[string]json.RawMessage) (form, error) {
	c := columnsOf(fmtPairs)
	c.Chosen, c.Rejected, c.Tools = cmp.Or(named.Chosen, c.Chosen), cmp.Or(named.Rejected, c.Rejected), cmp.Or(named.Tools, c.Tools)
	maps.Copy(c.Roles, named.Roles)
	for _, name := range []string{c.Chosen, c.Rejected} {
		if given(fields[name]) == nil {
			return form{}, missingField(name, fields)
		}
	}
	first := c.findPrompt(named, fields)
	c.System = cmp.Or(named.System, c.System)
	if _, shared := first["from"]; shared {
		c.Role, c.Content = "from", "value"
	}
	c.Role, c.Content = cmp.Or(named.Role, c.Role), cmp.Or(named.Content, c.Content)
	return form{format: fmtPairs, field: c.Chosen, cols: c}, nil
}

// findPrompt sets the column names of c that say where the row's prompt is. named holds the configured names. It
// returns the first message of the row, whose fields tell how roles are named; nil: the row has texts, no messages.
func (c *columns) findPrompt(named *columns, fields map[string]json.RawMessage) (first map[string]any) {
	has := func(name string) bool { return given(fields[name]) != nil }
	first = firstMessage(fields[c.Chosen])
	whole := first != nil && c.roleIn(first, named) != "assistant" // chosen and rejected are whole conversations
	if named.Prompt != "" && !named.Turn {
		c.Prompt = named.Prompt
	}
	switch {
	case named.Messages != "":
		c.inMessages(named.Messages)
	case named.Turn:
		c.Prompt, c.Query, c.Turn = cmp.Or(named.Prompt, columnsOf(fmtAlpaca).Prompt), named.Query, true
	case has(c.Prompt) && fields[c.Prompt][0] == '[':
		c.System = ""
		return firstMessage(fields[c.Prompt])
	case whole:
		c.Prompt, c.System = "", ""
	case has(c.Prompt) || named.Prompt != "":
	case has("conversations"):
		c.inMessages("conversations")
	case has("messages"):
		c.inMessages("messages")
	case has("instruction"):
		a := columnsOf(fmtAlpaca)
		c.Prompt, c.Query, c.History, c.Turn = a.Prompt, a.Query, a.History, true
	case has(questionField):
		c.Prompt, c.Turn = questionField, true
	default:
		c.Prompt, c.System = "", ""
	}
	if c.Messages != "" {
		return firstMessage(fields[c.Messages])
	}
	return first
}

// inMessages records that the prompt is the list of messages in the column called name.
func (c *columns) inMessages(name string) { c.Messages, c.Prompt = name, "" }

// firstMessage returns the first message of a JSON list, or a single message; nil for other values.
func firstMessage(raw json.RawMessage) map[string]any {
	var list []map[string]any
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return list[0]
	}
	var one map[string]any
	_ = json.Unmarshal(raw, &one) // the row's reader reports what is wrong
	return one
}

// roleIn returns the role of message m, translated to the name that templates use. The role is in
// the field that named configures, or in role or from; "": the message has none of them.
func (c *columns) roleIn(m map[string]any, named *columns) string {
	for _, field := range []string{named.Role, "role", "from"} {
		if name, ok := m[field].(string); ok {
			return c.Roles[name]
		}
	}
	return ""
}

// pair parses a row that is a pair, whose columns are c. Errors name the field, the value and what to do.
func (c *columns) pair(fields map[string]json.RawMessage) (*pair, error) {
	if err := checkUTF8(fields); err != nil {
		return nil, err
	}
	if err := noImages(fields); err != nil {
		return nil, err
	}
	raw := [2]json.RawMessage{given(fields[c.Chosen]), given(fields[c.Rejected])}
	for i, name := range []string{c.Chosen, c.Rejected} {
		if raw[i] == nil {
			return nil, missingField(name, fields)
		}
	}
	prompt := given(fields[c.Prompt])
	switch {
	case c.Prompt != "" && prompt == nil && (!c.Turn || given(fields[c.Query]) == nil):
		return nil, missingField(c.Prompt, fields)
	case prompt != nil && prompt[0] == '"' && raw[0][0] == '"' && !c.Turn:
		return c.textPair(fields)
	case c.Prompt == "" && c.Messages == "" && raw[0][0] == '"':
		return c.commonText(fields)
	}
	asked := &conversation{}
	if err := c.extras(asked, fields); err != nil {
		return nil, err
	}
	var err error
	switch {
	case c.Messages != "":
		err = c.chat(asked, fields)
	case c.Prompt == "":
		return c.common(asked, raw)
	case prompt != nil && prompt[0] == '[':
		err = c.list(asked, c.Prompt, prompt)
	default:
		err = c.question(asked, fields)
		asked.plain = true
	}
	if err != nil {
		return nil, err
	}
	p := &pair{asked: asked}
	for i, field := range []string{c.Chosen, c.Rejected} {
		if p.answers[i], err = c.answered(asked, field, raw[i]); err != nil {
			return nil, err
		}
	}
	return p, p.checkMarks()
}

// textPair parses a row with three texts: a prompt and two answers.
func (c *columns) textPair(fields map[string]json.RawMessage) (*pair, error) {
	system, err := textField(c.System, fields)
	if err != nil {
		return nil, err
	}
	if system != "" {
		return nil, fmt.Errorf("%s is %s, and %s is a text that is taken as it is, without a chat template; give messages, or name it field_instruction in datasets, so that it is the user's turn",
			c.System, clip([]byte(system)), c.Prompt)
	}
	t := &textPair{}
	for _, part := range []struct {
		name string
		to   *string
	}{{c.Prompt, &t.prompt}, {c.Chosen, &t.answers[0]}, {c.Rejected, &t.answers[1]}} {
		if *part.to, err = textField(part.name, fields); err != nil {
			return nil, err
		}
	}
	return &pair{text: t}, nil
}

// commonText parses a row of two texts, chosen and rejected, that both begin with the prompt. The prompt ends where
// the texts first differ. If a space stands just before the difference, it belongs to the answers. Source: TRL's
// extract_prompt.
func (c *columns) commonText(fields map[string]json.RawMessage) (*pair, error) {
	var texts [2][]rune
	for i, name := range []string{c.Chosen, c.Rejected} {
		text, err := textField(name, fields)
		if err != nil {
			return nil, err
		}
		texts[i] = []rune(text)
	}
	n := commonLength(texts[0], texts[1], equal)
	if n > 0 && texts[0][n-1] == ' ' && texts[0][n] != texts[1][n] {
		n--
	}
	if n < 1 {
		return nil, c.errNoPrompt()
	}
	t := &textPair{prompt: string(texts[0][:n])}
	for i, text := range texts {
		t.answers[i] = string(text[n:])
	}
	return &pair{text: t}, nil
}

// commonLength returns how many elements at the start of a and b are equal. The result is smaller
// than the length of the shorter slice, so that each answer keeps at least one element. Source:
// TRL's extract_prompt.
func commonLength[E any](a, b []E, same func(a, b E) bool) int {
	n := max(min(len(a), len(b))-1, 0)
	return agreeing(a[:n], b[:n], same)
}

func (c *columns) errNoPrompt() error {
	return fmt.Errorf("%s and %s have no beginning in common that could be the prompt; give it in a field of its own, prompt, or remove the row", c.Chosen, c.Rejected)
}

// common parses a row whose chosen and rejected are whole conversations. Their common first messages are the prompt,
// the other messages the answers. raw has the JSON of the two conversations; extras holds the row's tools and
// variables.
func (c *columns) common(extras *conversation, raw [2]json.RawMessage) (*pair, error) {
	p := &pair{}
	for i, field := range []string{c.Chosen, c.Rejected} {
		p.answers[i] = extras.clone()
		if err := c.list(p.answers[i], field, raw[i]); err != nil {
			return nil, err
		}
	}
	n := commonLength(p.answers[0].messages, p.answers[1].messages, sameMessage)
	if n < 1 {
		return nil, c.errNoPrompt()
	}
	p.asked = p.answers[0].clone()
	p.asked.messages, p.asked.names = p.asked.messages[:n], p.asked.names[:n]
	return p, p.checkMarks()
}

// checkMarks returns an error if a field of an answer's message, such as weight 0, excludes the
// message from training. DPO compares the probabilities of whole answers, so no message can be left
// out.
func (p *pair) checkMarks() error {
	for _, v := range p.answers {
		for i, m := range v.messages[len(p.asked.messages):] {
			if roleOf(m) == "assistant" && weightless(m) {
				return fmt.Errorf("%s has a mark that it is not to be trained on, and a pair's answers are compared as a whole; remove the mark, or the row", v.names[len(p.asked.messages)+i])
			}
		}
	}
	return nil
}

// sameMessage reports whether two messages are equal, whatever the order of their fields.
func sameMessage(a, b any) bool {
	var plain [2]any
	for i, m := range []any{a, b} {
		text, err := m.(*jinja.Object).MarshalJSON()
		if err != nil || json.Unmarshal(text, &plain[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(plain[0], plain[1])
}

// answered returns a copy of the conversation asked, which is the prompt, with an answer appended. raw is the JSON of
// the answer: a text, a message, or a list of messages. field is its column, for errors.
func (c *columns) answered(asked *conversation, field string, raw json.RawMessage) (*conversation, error) {
	v := asked.clone()
	switch raw[0] {
	case '[':
		return v, c.list(v, field, raw)
	case '{':
		return v, c.list(v, field, slices.Concat([]byte{'['}, raw, []byte{']'}))
	case '"':
		if err := halfSurrogate(field, raw); err != nil {
			return nil, err
		}
		v.add("assistant", string(unquote(nil, raw[1:len(raw)-1])))
		return v, nil
	}
	return nil, fmt.Errorf("%s is %s; it must be a text, a message or a list of messages", field, clip(raw))
}

// clone returns a copy of v. Messages appended to the copy do not change v.
func (v *conversation) clone() *conversation {
	out := *v
	out.messages, out.names = slices.Clip(v.messages), slices.Clip(v.names)
	return &out
}

// errNoAnswer is the error of a pair with an empty answer.
var errNoAnswer = &badRow{class: classUnsupervised, err: errors.New("no token of an answer is supervised: chosen or rejected is empty; remove the row")}

// pair sets e.ids to the chosen document followed by the rejected one, e.labs to their labels, and
// e.cut to the start of the rejected document. Each document is the prompt with an answer, and only
// the answer is supervised. The prompt alone is tokenized too, with the answer's header at its end.
// The answers begin at the first token in which this prompt differs from one of the documents.
// Source: TRL's DPOTrainer.
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
		flags |= e.openEnd()
		ids, labs = append(ids, e.ids...), append(labs, e.labs...)
	}
	e.ids, e.labs, e.cut = ids, labs, len(sides[0])
	return flags, nil
}

// agreeing returns how many elements at the start of a are equal to those at the start of b.
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

// textSides returns the tokens of a prompt, and, as sides, of the prompt followed by each answer (chosen, rejected)
// and EOS.
func (e *encoder) textSides(t *textPair) (prompt []int32, sides [2][]int32, err error) {
	if prompt, err = e.prefixTokens(t.prompt); err != nil {
		return nil, sides, err
	}
	for i, answer := range t.answers {
		if sides[i], err = e.prefixTokens(t.prompt + answer); err != nil {
			return nil, sides, err
		}
		eos, n := e.around.eos, len(sides[i])
		if ends := answer != "" && n > 0 && sides[i][n-1] == eos; eos != IgnoreIndex && !ends {
			sides[i] = append(sides[i], eos)
		}
	}
	return prompt, sides, nil
}

// prefixTokens returns the tokens of a text, after the tokens that the tokenizer adds before a text. No token is
// added after it.
func (e *encoder) prefixTokens(text string) ([]int32, error) {
	return e.tok.Encode(slices.Clone(e.around.before), []byte(text))
}

// chatSides returns the tokens of a prompt up to the start of the answer, and, as sides, of the prompt with each
// answer (chosen, rejected). The chat template or layout writes the text.
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
		out, given, err := e.writeAny(v, e.renderUnchanged)
		if err != nil {
			return 0, nil, sides, err
		}
		if sides[i], err = e.tok.Encode(nil, []byte(out.Text)); err != nil {
			return 0, nil, sides, err
		}
		sides[i] = e.withEndMarker(given, out, sides[i], agreeing(prompt, sides[i], equal))
		flags |= out.left
	}
	return flags, prompt, sides, nil
}

// withEndMarker returns ids, the tokens of v, with the token that ends the last answer. If the
// template already wrote such a token, ids stay unchanged. Some templates end an answer only by the
// token that begins the next turn; withEndMarker then appends that token. The template's text of v
// is out, and first is the number of the prompt's tokens.
func (e *encoder) withEndMarker(v *conversation, out written, ids []int32, first int) []int32 {
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
