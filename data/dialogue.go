package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"mt/data/jinja"
)

// Dialogue turns conversations into prompts, with the chat template that a data set of the same Spec would use.
type Dialogue struct {
	e *encoder
	// Notes are hints for the user, one sentence each.
	Notes []string
}

// NewDialogue finds the chat template that s describes. It uses only the fields Tokenizer, VocabSize, Template,
// TemplateVars and ModelDir of s.
func NewDialogue(s Spec) (*Dialogue, error) {
	if s.chat = newChatForm(&s); s.chat.err != nil {
		return nil, &SpecError{"template", s.chat.err}
	}
	return &Dialogue{newEncoder(&s), s.unreadVars()}, nil
}

// Prompt returns the token ids of a conversation, up to the place where the assistant's answer begins.
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

// askByLayout returns the token ids of a conversation up to the start of the answer. The
// conversation is written in the layout l, a chat format made of text pieces instead of a Jinja
// template.
func (e *encoder) askByLayout(l *layout, v *conversation) ([]int32, error) {
	if v.tools != nil {
		return nil, l.noTools()
	}
	e.ids, e.labs = e.ids[:0], e.labs[:0]
	if err := e.layTurns(l, v, len(v.messages)-1); err != nil {
		return nil, err
	}
	if l.thinks() && !e.thinking(v) { // the answer follows an empty thought
		return e.tok.Encode(slices.Clone(e.ids), []byte(l.emptyThought()))
	}
	return slices.Clone(e.ids), nil
}

// Ends returns the special tokens at which generation stops, since the answer has ended. If the chat template writes
// a token after an answer, it is this token. Otherwise it is the tokens that begin a turn of the user or of a tool.
// nil: there are none, or they cannot be found.
func (d *Dialogue) Ends() []int32 {
	const answer = "answer"
	var ids []int32
	if l := d.e.spec.chat.layout; l != nil { // EOS always ends answers
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

// Conversation is a chat for a model to continue.
type Conversation struct {
	// Where is the chat's origin, such as chats.jsonl:3; "": the chat was not read from a file.
	Where string
	v     conversation
}

// Add appends a turn of plain text.
func (c *Conversation) Add(role, text string) { c.v.add(role, text) }

// Turns returns the number of turns (messages).
func (c *Conversation) Turns() int { return len(c.v.messages) }

// LastRole returns the role of the last turn; "": there are no turns.
func (c *Conversation) LastRole() string {
	if n := c.Turns(); n > 0 {
		return roleOf(c.v.messages[n-1])
	}
	return ""
}

// Cut removes turn n, counted from 0, and all later turns.
func (c *Conversation) Cut(n int) {
	c.v.messages, c.v.names = c.v.messages[:n:n], c.v.names[:n:n]
}

// Begin puts a system turn before all others. It fails if the conversation already has one.
func (c *Conversation) Begin(system string) error {
	if slices.ContainsFunc(c.v.messages, func(m any) bool { return roleOf(m) == "system" || roleOf(m) == "developer" }) {
		return errors.New("the conversation has a system's turn already; give one of the two")
	}
	own := &Conversation{}
	own.Add("system", system)
	c.v.messages = append(own.v.messages, c.v.messages...)
	c.v.names = append(own.v.names, c.v.names...)
	return nil
}

// Clone returns a copy. Changes to the copy do not affect c.
func (c *Conversation) Clone() *Conversation {
	out := *c
	out.Cut(c.Turns())
	return &out
}

// MarshalJSON writes {"messages": [...]}, and "tools" if there are any.
func (c *Conversation) MarshalJSON() ([]byte, error) {
	o := jinja.NewObject("messages", c.v.messages)
	if c.v.tools != nil {
		o.Set("tools", c.v.tools)
	}
	return o.MarshalJSON()
}

// ReadConversations reads chats to be answered from r, which holds JSON or JSONL. A conversation is a list of
// messages, or an object with the field messages, like a row of a data set. A list of conversations, or one on each
// line, gives several. Lines that are single messages form one conversation. name says in errors where r comes from.
func ReadConversations(r io.Reader, name string) ([]*Conversation, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxRow+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxRow:
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxRow>>20)
	}
	if err := notUTF8(name, text); err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	unit := unitRow
	var rows rowReader
	if trimmed := bytes.TrimSpace(text); json.Valid(trimmed) && trimmed[0] == '{' { // one object, perhaps over several lines
		rows = &oneRow{row: trimmed}
	} else {
		rows = newJSONRows(bytes.NewReader(text), &unit)
	}
	b := &conversations{}
	for {
		row, n, err := rows.next(nil)
		if err == io.EOF {
			return b.end(name)
		}
		where := place(name, unit, n)
		if err == nil {
			err = b.row(row, where)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
}

// oneRow is a rowReader that returns a single row, for input of one JSON value.
type oneRow struct{ row []byte }

func (o *oneRow) next(dst []byte) ([]byte, int64, error) {
	if o.row == nil {
		return dst, 1, io.EOF
	}
	dst, o.row = append(dst, o.row...), nil
	return dst, 1, nil
}

// conversations collects rows while they are read: all holds complete conversations, messages the single messages
// that will form one conversation.
type conversations struct {
	all      []*Conversation
	messages [][]byte
}

// row adds a row, which is a single message or a whole conversation. where locates the row in errors.
func (b *conversations) row(raw []byte, where string) error {
	if raw[0] == '[' { // an element of a list of conversations
		return b.whole(map[string]json.RawMessage{"messages": raw}, where)
	}
	fields, err := rowFields(raw, func(name string, _ []byte) bool { return name == "messages" || name == "conversations" })
	if err != nil {
		return err
	}
	_, role := fields["role"]
	_, from := fields["from"]
	switch isMessage := role || from; {
	case isMessage && len(b.all) > 0, !isMessage && len(b.messages) > 0:
		return errors.New("some rows are messages and some whole conversations; a file has one kind")
	case isMessage:
		b.messages = append(b.messages, raw)
		return nil
	}
	return b.whole(fields, where)
}

// whole adds a row with these fields as a whole conversation. Other rows are errors.
func (b *conversations) whole(fields map[string]json.RawMessage, where string) error {
	f, err := recognised(fields)
	if err != nil || f.format != fmtMessages && f.format != fmtShareGPT {
		return errors.New(`this is no chat; give {"messages": [{"role": "user", "content": "..."}]}, or such messages alone`)
	}
	v, err := f.cols.turns(f.format, fields)
	if err != nil {
		return err
	}
	b.all = append(b.all, &Conversation{where, *v})
	return nil
}

// end returns all conversations; single messages that were collected form the last one. It is called after the last
// row. name is the origin of the rows, for errors.
func (b *conversations) end(name string) ([]*Conversation, error) {
	if len(b.messages) > 0 {
		list := append(append([]byte{'['}, bytes.Join(b.messages, []byte{','})...), ']')
		if err := b.whole(map[string]json.RawMessage{"messages": list}, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(b.all) == 0 {
		return nil, fmt.Errorf("%s holds no messages", name)
	}
	return b.all, nil
}
