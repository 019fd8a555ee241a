package data

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"mt/jinja"
)

// Dialogue turns conversations into prompts for a model to answer, by the chat template
// that a data set of the same Spec would go through.
type Dialogue struct {
	e *encoder
	// Notes are what a user should know, one sentence each.
	Notes []string
}

// NewDialogue finds the chat template of s. Of s it uses Tokenizer, VocabSize, Template,
// TemplateVars and ModelDir.
func NewDialogue(s Spec) (*Dialogue, error) {
	if s.chat = newChatForm(&s); s.chat.err != nil {
		return nil, &SpecError{"template", s.chat.err}
	}
	return &Dialogue{newEncoder(&s), s.unreadVars()}, nil
}

// Prompt gives the ids of a conversation up to where the assistant's answer begins.
func (d *Dialogue) Prompt(c *Conversation) ([]int32, error) {
	ids, err := d.prompt(c)
	if err != nil {
		return nil, err
	}
	return ids, d.e.within(ids)
}

func (d *Dialogue) prompt(c *Conversation) ([]int32, error) {
	v := &c.v
	if len(v.messages) == 0 {
		return nil, errors.New("the conversation is empty; give the user's turn")
	}
	if roleOf(v.messages[len(v.messages)-1]) == "assistant" {
		return nil, errors.New("the conversation ends with the assistant's turn, so there is nothing to answer; remove that turn, or add the user's")
	}
	for i, m := range v.messages {
		content, _ := m.(*jinja.Object).Get("content")
		if text, _ := contentText(content, ""); !utf8.ValidString(text) {
			return nil, notUTF8(v.names[i], []byte(text))
		}
	}
	if d.e.tmpl == nil {
		return d.e.askByLayout(d.e.spec.chat.layout, v)
	}
	out, _, err := d.e.writeAny(v, d.e.asked)
	if err != nil {
		return nil, err
	}
	return d.e.tok.Encode(nil, []byte(out.Text))
}

// askByLayout are the ids of a conversation by the layout l, up to where the answer begins.
func (e *encoder) askByLayout(l *layout, v *conversation) ([]int32, error) {
	if v.tools != nil {
		return nil, l.noTools()
	}
	e.ids, e.labs = e.ids[:0], e.labs[:0]
	if err := e.layTurns(l, v, len(v.messages)-1); err != nil {
		return nil, err
	}
	if l.thinks() && !e.thinking(v) { // the answer goes on behind thoughts that there were none of
		return e.tok.Encode(slices.Clone(e.ids), []byte(l.emptyThought()))
	}
	return slices.Clone(e.ids), nil
}

// Ends are the special tokens with which the chat template ends an answer: the one that
// it writes behind an answer, else the markers with which turns of the user and of a tool
// begin. There are none where it ends answers with none, or where that could not be found out.
func (d *Dialogue) Ends() []int32 {
	const answer = "answer"
	var ids []int32
	if l := d.e.spec.chat.layout; l != nil { // EOS ends answers anyway
		for _, end := range l.ends {
			if id, ok := d.e.tok.TokenID(end); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	v := &conversation{}
	v.add("user", "question")
	v.add("assistant", answer)
	r, turns, err := d.e.tmpl.SupervisedSpans(d.e.variables(v))
	if err != nil {
		return nil
	}
	for _, t := range turns {
		_, behind, found := strings.Cut(r.Text[t.From:t.To], answer)
		if !found {
			continue
		}
		ids, err := d.e.tok.Encode(nil, []byte(behind))
		if err != nil {
			return nil
		}
		for _, id := range ids {
			if d.e.special(id) {
				return []int32{id}
			}
		}
	}
	for _, more := range []*jinja.Object{jinja.NewObject("role", "user", "content", "x"), jinja.NewObject("role", "tool", "content", "x", "name", "f", "tool_call_id", "1")} {
		if id := d.e.markerOf(v, more); id != IgnoreIndex && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
