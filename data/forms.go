package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// format says which fields rows have and what these mean.
type format string

const (
	fmtText     format = "text"
	fmtIDs      format = "input_ids"
	fmtAlpaca   format = "alpaca"
	fmtShareGPT format = "sharegpt"
	fmtMessages format = "messages"
	fmtPrompt   format = "prompt_completion"
	fmtPairs    format = "pairs"
)

// form is a format with the names of the columns that the rows of a file have.
type form struct {
	format format
	field  string // the field by which the format was recognised
	cols   *columns
	// loose says that the format was given, so that columns may go by any of its usual names.
	loose bool
}

// kind is the kind of documents that rows of the format make.
func (f format) kind() kind {
	switch f {
	case fmtText:
		return kindText
	case fmtIDs:
		return kindIDs
	case fmtPairs:
		return kindPairs
	}
	return kindChat
}

// marks are the fields by which formats are recognised; the first that a row has counts.
var marks = []struct {
	field  string
	format format
}{
	{"input_ids", fmtIDs}, {"messages", fmtMessages}, {"conversations", fmtShareGPT}, {"conversation", fmtShareGPT},
	{"instruction", fmtAlpaca}, {"prompt", fmtPrompt}, {"text", fmtText}, {chosenField, fmtPairs},
}

// responses are the usual names of the field with the answer to "prompt".
var responses = []string{"completion", "response"}

// columns are the names that the parts of a row have in a file; empty for parts that it lacks.
type columns struct {
	Text, System, Tools              string
	Prompt, Query, Response, History string
	Messages                         string
	Role, Content                    string // fields of a message
	// Chosen and Rejected are the answers of a pair. Turn says that the prompt of a pair is the
	// user's turn also where it is a text; else texts follow each other as they are.
	Chosen, Rejected string `json:",omitempty"`
	Turn             bool   `json:",omitempty"`
	// Roles maps the names that a chat has for roles to those of templates. function_call
	// stands for an assistant that calls a function.
	Roles map[string]string
}

// columnsOf are the usual names of the columns of a format.
func columnsOf(f format) *columns {
	switch f {
	case fmtAlpaca:
		return &columns{System: "system", Tools: "tools", Prompt: "instruction", Query: "input", Response: "output", History: "history"}
	case fmtShareGPT:
		return &columns{System: "system", Tools: "tools", Messages: "conversations", Role: "from", Content: "value", Roles: shareGPTRoles}
	case fmtMessages:
		return &columns{Tools: "tools", Messages: "messages", Role: "role", Content: "content", Roles: openAIRoles}
	case fmtPairs:
		return &columns{System: "system", Tools: "tools", Prompt: "prompt", Chosen: chosenField, Rejected: rejectedField, Role: "role", Content: "content", Roles: anyRoles()}
	case fmtPrompt:
		return &columns{System: "system", Tools: "tools", Prompt: "prompt", Response: "completion", Role: "role", Content: "content", Roles: openAIRoles}
	}
	return &columns{Text: "text"}
}

const functionCall = "function_call"

var (
	openAIRoles = map[string]string{"system": "system", "developer": "developer", "user": "user", "assistant": "assistant",
		"tool": "tool", "function": "tool"}
	shareGPTRoles = map[string]string{"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
		functionCall: functionCall, "observation": "tool", "tool": "tool"}
)

// anyRoles are the roles of both, for rows in which either may stand.
func anyRoles() map[string]string {
	roles := maps.Clone(shareGPTRoles)
	maps.Copy(roles, openAIRoles)
	return roles
}

// lists tells which values of a table are lists in JSON, and not the text that a table has in
// every column. In the columns of pairs, which may be texts too, these are lists of messages.
func (s *Spec) lists(set int) func(name string, value []byte) bool {
	known := append(slices.Clone(idLists), "input_ids", olderTools, s.Columns.Messages)
	for _, m := range marks {
		c := columnsOf(m.format)
		known = append(known, c.Messages, c.History, c.Tools)
		if m.format.kind() == kindChat && c.Messages != "" {
			known = append(known, m.field)
		}
	}
	either := append(slices.Clone(responses), chosenField, rejectedField, columnsOf(fmtPairs).Prompt, s.Columns.Prompt, s.Columns.Response)
	var own []*columns
	if set < len(s.sets) {
		own = []*columns{s.sets[set].Columns, s.sets[set].Names}
	}
	for _, c := range own {
		if c != nil {
			known = append(known, c.Messages, c.History, c.Tools)
			either = append(either, c.Chosen, c.Rejected, c.Prompt, c.Response)
		}
	}
	return func(name string, value []byte) bool {
		return name != "" && (slices.Contains(known, name) || slices.Contains(either, name) && isMessages(value))
	}
}

// answers tells which columns of a data set hold answers, by their usual names and by those that
// are given. A table has no null, so an empty value there is an answer that is missing.
func (s *Spec) answers(set int) func(name string) bool {
	known := append(slices.Clone(responses), columnsOf(fmtAlpaca).Response, chosenField, rejectedField, s.Columns.Response)
	if set < len(s.sets) {
		for _, c := range []*columns{s.sets[set].Columns, s.sets[set].Names} {
			if c != nil {
				known = append(known, c.Response, c.Chosen, c.Rejected)
			}
		}
	}
	return func(name string) bool { return name != "" && slices.Contains(known, name) }
}

// isMessages tells whether text is a list of messages in JSON.
func isMessages(text []byte) bool {
	if len(text) == 0 || text[0] != '[' {
		return false
	}
	first := firstMessage(text)
	return first["role"] != nil || first["from"] != nil
}

// recognised is the form of a row whose fields have their usual names.
func recognised(fields map[string]json.RawMessage) (form, error) {
	if given(fields["text"]) != nil && given(fields["input_ids"]) != nil {
		return form{}, errors.New("both text and input_ids; keep the one to train on")
	}
	unanswered := false // there is a prompt, and the field of its answer is null
	for _, m := range marks {
		raw := given(fields[m.field])
		if raw == nil {
			continue
		}
		f := form{format: m.format, field: m.field, cols: columnsOf(m.format)}
		switch m.format {
		case fmtAlpaca:
			if given(fields[f.cols.Response]) == nil && given(fields[chosenField]) != nil {
				continue
			}
		case fmtPairs:
			return pairForm(&columns{}, fields)
		case fmtPrompt:
			i := slices.IndexFunc(responses, func(r string) bool { return given(fields[r]) != nil })
			if i < 0 {
				unanswered = unanswered || slices.ContainsFunc(responses, func(r string) bool { return fields[r] != nil })
				continue
			}
			f.cols.Response = responses[i]
		case fmtMessages, fmtShareGPT:
			f = chatForms(f, raw)
		}
		return f, nil
	}
	if unanswered {
		i := slices.IndexFunc(responses, func(r string) bool { return fields[r] != nil })
		return form{}, missingField(responses[i], fields)
	}
	for _, m := range marks {
		if raw, ok := fields[m.field]; ok && given(raw) == nil {
			return form{}, missingField(m.field, fields)
		}
	}
	return form{}, errNoForm(fields)
}

// chatForms sets the format of a list of messages: ShareGPT's where they have "from" and
// "value", OpenAI's where they have "role" and "content", whatever the list is called.
func chatForms(f form, raw json.RawMessage) form {
	var first []map[string]json.RawMessage
	if json.Unmarshal(raw, &first) == nil && len(first) > 0 {
		if _, ok := first[0]["from"]; ok {
			f.format = fmtShareGPT
		} else if _, ok := first[0]["role"]; ok {
			f.format = fmtMessages
		}
	}
	f.cols = columnsOf(f.format)
	f.cols.Messages, f.cols.System = f.field, "system"
	return f
}

// formOf recognises the form of a row of a data set by its fields.
func (s *Spec) formOf(set int, fields map[string]json.RawMessage) (form, error) {
	d := &s.sets[set]
	if !s.Pairs && d.Format != fmtPairs && s.Format != string(fmtPairs) {
		return s.Columns.formOf(fields)
	}
	if s.Pairs && d.Format == "" && fields[chosenField] == nil && fields[rejectedField] == nil {
		return form{}, &fatalRow{fmt.Errorf("dpo trains on pairs, and data set %q holds other rows: this one has neither chosen nor rejected among its fields %q; take the data set out, or name its columns in datasets: field_chosen, field_rejected",
			d.Name, slices.Sorted(maps.Keys(fields)))}
	}
	named := d.Names
	if named == nil {
		named = &columns{Prompt: s.Columns.Prompt, Messages: s.Columns.Messages}
	}
	return pairForm(named, fields)
}

// formIn is the form of all rows of a data set; false where none is given, and each file's
// first row decides.
func (s *Spec) formIn(set int) (form, bool) {
	d := &s.sets[set]
	if d.Format != "" && d.Columns != nil {
		return form{format: d.Format, cols: d.Columns}, true
	}
	switch f := format(s.Format); f {
	case fmtAlpaca, fmtShareGPT, fmtMessages, fmtPrompt:
		return form{format: f, cols: s.Columns.rename(columnsOf(f), f), loose: true}, true
	}
	return form{}, false
}

// agree is the form of a row. It is an error where its format is not f's, with which the
// file began.
func (f form) agree(s *Spec, set int, fields map[string]json.RawMessage) (form, error) {
	g, err := s.formOf(set, fields)
	if err == nil && g.format != f.format {
		err = fmt.Errorf("this is %s, and what came before is %s (field %q); a file holds rows of one format", g.format, f.format, g.field)
	}
	return g, err
}

// Columns names the columns of rows where they have other names than their format's own:
// that of a row's text, of its list of messages, or of its prompt and of the answer. An
// empty one has its usual name. Entries of dataset_info.json have columns of their own.
type Columns struct {
	Text, Messages, Prompt, Response string
}

// The keys of the configuration that set Columns.
const (
	textColumnKey     = "text_column"
	messagesColumnKey = "messages_column"
	promptColumnKey   = "prompt_column"
	responseColumnKey = "response_column"
)

// given are the keys of the columns that are given, in order.
func (c Columns) given() []string {
	var keys []string
	for _, k := range []struct{ key, name string }{
		{textColumnKey, c.Text}, {messagesColumnKey, c.Messages}, {promptColumnKey, c.Prompt}, {responseColumnKey, c.Response},
	} {
		if k.name != "" {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// has tells whether name is the name of one of the columns.
func (c Columns) has(name string) bool {
	return name != "" && slices.Contains([]string{c.Text, c.Messages, c.Prompt, c.Response}, name)
}

// columnsIn are, for each dataset_format, the column keys that go with it. With a format
// that is not listed all of them do.
var columnsIn = map[string][]string{
	"text":            {},
	string(fmtAlpaca): {promptColumnKey, responseColumnKey}, string(fmtPrompt): {promptColumnKey, responseColumnKey},
	string(fmtShareGPT): {messagesColumnKey}, string(fmtMessages): {messagesColumnKey},
	string(fmtPairs): {promptColumnKey, messagesColumnKey},
}

// checkColumns refuses columns that contradict each other or the Spec's format.
func (s *Spec) checkColumns() error {
	given := s.Columns.given()
	if len(given) == 0 {
		return nil
	}
	wrong := func(key, format string, args ...any) error {
		return &SpecError{key, fmt.Errorf(key+" "+format, args...)}
	}
	format := s.Format
	if s.Pairs {
		format = string(fmtPairs)
	}
	if allowed, limited := columnsIn[format]; limited {
		for _, key := range given {
			switch {
			case slices.Contains(allowed, key):
			case len(allowed) == 0:
				return wrong(key, "is given, and dataset_format %s takes files as they are; leave one of them out", format)
			default:
				return wrong(key, "has no place in dataset_format %s, which has %s", format, strings.Join(allowed, " and "))
			}
		}
	}
	if first := given[0]; len(given) > 1 && first != promptColumnKey {
		return wrong(first, "and %s say different things of a row; give the one to train on", given[1])
	}
	return nil
}

// rename replaces names in cols, the columns of format f, by those that c gives.
func (c Columns) rename(cols *columns, f format) *columns {
	switch f {
	case fmtAlpaca, fmtPrompt:
		cols.Prompt, cols.Response = cmp.Or(c.Prompt, cols.Prompt), cmp.Or(c.Response, cols.Response)
	case fmtShareGPT, fmtMessages:
		cols.Messages = cmp.Or(c.Messages, cols.Messages)
	}
	return cols
}

// formOf recognises the form of a row by its fields.
func (c Columns) formOf(fields map[string]json.RawMessage) (form, error) {
	switch {
	case c.Text != "":
		return c.named(form{format: fmtText, field: c.Text, cols: &columns{Text: c.Text}}, fields)
	case c.Messages != "":
		f, err := c.named(form{format: fmtMessages, field: c.Messages}, fields)
		return chatForms(f, fields[c.Messages]), err
	case c.Prompt != "" || c.Response != "":
		return c.prompted(fields)
	}
	return recognised(fields)
}

// named is f, if the row has the field that f is known by.
func (c Columns) named(f form, fields map[string]json.RawMessage) (form, error) {
	if given(fields[f.field]) == nil {
		return form{}, fmt.Errorf("%s: %w", c.given()[0], missingField(f.field, fields))
	}
	return f, nil
}

// prompted recognises a row with a prompt and its answer, at least one of which has a name
// that c gives. It is of Alpaca's form where the prompt is the field "instruction".
func (c Columns) prompted(fields map[string]json.RawMessage) (form, error) {
	f := form{format: fmtPrompt}
	has := func(name string) bool { return given(fields[name]) != nil }
	if usual := columnsOf(fmtAlpaca).Prompt; c.Prompt == usual || c.Prompt == "" && !has(columnsOf(fmtPrompt).Prompt) && has(usual) {
		f.format = fmtAlpaca
	}
	f.cols = c.rename(columnsOf(f.format), f.format)
	f.field = f.cols.Prompt
	if c.Prompt == "" && !has(f.field) {
		return form{}, fmt.Errorf("%s is given and %s is not, and the row has no %s, %s; it has %q",
			responseColumnKey, promptColumnKey, columnsOf(fmtPrompt).Prompt, columnsOf(fmtAlpaca).Prompt, slices.Sorted(maps.Keys(fields)))
	}
	if c.Response != "" {
		return c.named(f, fields)
	}
	answers := append(slices.Clone(responses), columnsOf(fmtAlpaca).Response)
	at := slices.IndexFunc(answers, has)
	if at < 0 {
		return form{}, fmt.Errorf("%s is given and %s is not, and the row has no %s; it has %q",
			promptColumnKey, responseColumnKey, strings.Join(answers, ", "), slices.Sorted(maps.Keys(fields)))
	}
	f.cols.Response = answers[at]
	return c.named(f, fields)
}

// ofText is an error where columns are given and the file is plain text, which has none.
func (c Columns) ofText(name string) error {
	if keys := c.given(); len(keys) > 0 {
		return fmt.Errorf("%s is plain text and has no columns; leave out %s, or choose the files that have some, for instance with a glob", name, keys[0])
	}
	return nil
}

// errNoColumn is the error of a file with these columns, none of which is known.
func errNoColumn(all []string) error {
	return fmt.Errorf("no column that could be trained on among %q; say which they are: %s, %s, or %s and %s; or name them in %s",
		all, textColumnKey, messagesColumnKey, promptColumnKey, responseColumnKey, infoName)
}

// errNoForm is the error of a row with no field that is known.
func errNoForm(fields map[string]json.RawMessage) error {
	hint := ""
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if firstMessage(fields[name]) != nil && fields[name][0] == '[' {
			hint = fmt.Sprintf("; field %q is a list of objects: if these are the rows, write one on each line (%s)", name, jqOf(name))
			break
		}
	}
	return errors.New("neither text nor input_ids, and no chat (messages, conversations, instruction and output, or prompt and completion), and no pair (chosen and rejected) among the fields " +
		fmt.Sprintf("%q; give one of them, or say which they are: ", slices.Sorted(maps.Keys(fields))) +
		textColumnKey + ", " + messagesColumnKey + ", or " + promptColumnKey + " and " + responseColumnKey + hint)
}
