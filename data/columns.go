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
