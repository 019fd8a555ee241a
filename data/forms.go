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

// format says which fields a row has and what they mean: for example, alpaca rows have an instruction and an output.
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

// form is a format together with the column names that the rows of one file use.
type form struct {
	format format
	field  string // field that identified the format
	cols   *columns
	// loose reports that the user set the format. A part of the row may then have any of the names usual for this
	// format.
	loose bool
}

// kind returns the kind of the document that a row of this format becomes: text, ids, chat or
// pairs.
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

// marks lists the fields by which a row's format is recognised. The first field in the list that the row has decides.
var marks = []struct {
	field  string
	format format
}{
	{"input_ids", fmtIDs}, {"messages", fmtMessages}, {"conversations", fmtShareGPT}, {"conversation", fmtShareGPT},
	{"instruction", fmtAlpaca}, {"prompt", fmtPrompt}, {"text", fmtText}, {chosenField, fmtPairs},
}

// responses are the usual names of the field that holds the answer to the field prompt.
var responses = []string{"completion", "response"}

// columns maps each part of a row to the name of the column that holds it. "": the rows lack this part.
type columns struct {
	Text, System, Tools              string
	Prompt, Query, Response, History string
	Messages                         string
	Role, Content                    string // fields of a message
	// Chosen and Rejected are the two answers of a pair. Turn reports that a prompt given as text is a user turn
	// of a chat. Without Turn the texts are concatenated, and no chat template is used.
	Chosen, Rejected string `json:",omitempty"`
	Turn             bool   `json:",omitempty"`
	// Roles maps the roles that a file uses to the roles that chat templates use. The role function_call becomes
	// an assistant's message that calls a function.
	Roles map[string]string
}

// columnsOf returns the usual column names of a format.
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

// anyRoles returns the union of OpenAI's and ShareGPT's roles, for rows that may use either.
func anyRoles() map[string]string {
	roles := maps.Clone(shareGPTRoles)
	maps.Copy(roles, openAIRoles)
	return roles
}

// lists returns a function for data set number set. The function reports whether a value of a CSV
// or TSV column is a JSON list rather than text. A column of prompts or answers may hold text or a
// list; a list counts there only if it looks like messages.
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

// answers returns a function for data set number set. The function reports whether a column holds
// answers, by its usual or its configured name. CSV has no null, so an empty value in such a column
// is a missing answer.
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

// isMessages reports whether text is a JSON list of messages.
func isMessages(text []byte) bool {
	if len(text) == 0 || text[0] != '[' {
		return false
	}
	first := firstMessage(text)
	return first["role"] != nil || first["from"] != nil
}

// recognised returns the form of a row, found by the usual names of its fields. A row that has no known field is an
// error.
func recognised(fields map[string]json.RawMessage) (form, error) {
	if given(fields["text"]) != nil && given(fields["input_ids"]) != nil {
		return form{}, errors.New("both text and input_ids; keep the one to train on")
	}
	unanswered := false // the row has a prompt, and its answer is null
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

// chatForms sets the format of f by raw, the row's list of messages. A first message with the field from means
// ShareGPT; the field role means OpenAI. The column itself may be called messages or conversations in both formats.
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

// formOf returns the form of a row of data set number set, by the row's fields.
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

// formIn returns the form of all rows of data set number set, if the configuration gives it. Otherwise it returns
// false: the first row of each file decides.
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

// agree returns the form of a row. It fails if the row's format differs from f's format, which the
// first row of the file had.
func (f form) agree(s *Spec, set int, fields map[string]json.RawMessage) (form, error) {
	g, err := s.formOf(set, fields)
	if err == nil && g.format != f.format {
		err = fmt.Errorf("this is %s, and what came before is %s (field %q); a file holds rows of one format", g.format, f.format, g.field)
	}
	return g, err
}

// Columns names a file's columns if they do not have their usual names: a row's text, list of messages, prompt, or
// answer. "": the usual name. Entries of dataset_info.json name their columns in the file itself.
type Columns struct {
	Text, Messages, Prompt, Response string
}

// The configuration keys that set the fields of Columns.
const (
	textColumnKey     = "text_column"
	messagesColumnKey = "messages_column"
	promptColumnKey   = "prompt_column"
	responseColumnKey = "response_column"
)

// given returns the configuration keys, such as text_column, of the columns that c names.
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

// has reports whether name is one of the columns that c names.
func (c Columns) has(name string) bool {
	return name != "" && slices.Contains([]string{c.Text, c.Messages, c.Prompt, c.Response}, name)
}

// columnsIn lists, for each value of dataset_format, the column keys that go together with it. Other formats allow
// all column keys.
var columnsIn = map[string][]string{
	"text":            {},
	string(fmtAlpaca): {promptColumnKey, responseColumnKey}, string(fmtPrompt): {promptColumnKey, responseColumnKey},
	string(fmtShareGPT): {messagesColumnKey}, string(fmtMessages): {messagesColumnKey},
	string(fmtPairs): {promptColumnKey, messagesColumnKey},
}

// checkColumns returns an error if the column keys contradict each other or the Spec's format.
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

// rename returns cols, the columns of format f, with the names that the user configured in c in
// place of the usual ones.
func (c Columns) rename(cols *columns, f format) *columns {
	switch f {
	case fmtAlpaca, fmtPrompt:
		cols.Prompt, cols.Response = cmp.Or(c.Prompt, cols.Prompt), cmp.Or(c.Response, cols.Response)
	case fmtShareGPT, fmtMessages:
		cols.Messages = cmp.Or(c.Messages, cols.Messages)
	}
	return cols
}

// formOf returns the form of a row by its fields. c gives the names of those columns that do not have their usual
// names.
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

// named returns f if the row has the field f.field, which the user has named, and otherwise an error.
func (c Columns) named(f form, fields map[string]json.RawMessage) (form, error) {
	if given(fields[f.field]) == nil {
		return form{}, fmt.Errorf("%s: %w", c.given()[0], missingField(f.field, fields))
	}
	return f, nil
}

// prompted returns the form of a row with a prompt and an answer, if c names at least one of the two columns. If the
// prompt is the field instruction, the form is Alpaca's, which has further fields.
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

// ofText returns an error if columns are configured for a plain text file, since such a file has no columns. name is
// the file.
func (c Columns) ofText(name string) error {
	if keys := c.given(); len(keys) > 0 {
		return fmt.Errorf("%s is plain text and has no columns; leave out %s, or choose the files that have some, for instance with a glob", name, keys[0])
	}
	return nil
}

// errNoColumn returns the error of a file in which no column has a name that mt knows. `all` lists the file's columns.
func errNoColumn(all []string) error {
	return fmt.Errorf("no column that could be trained on among %q; say which they are: %s, %s, or %s and %s; or name them in %s",
		all, textColumnKey, messagesColumnKey, promptColumnKey, responseColumnKey, infoName)
}

// errNoForm returns the error of a row without a known field.
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
