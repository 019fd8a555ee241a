package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// format is how a row says what it holds.
type format string

const (
	fmtText     format = "text"
	fmtIDs      format = "input_ids"
	fmtAlpaca   format = "alpaca"
	fmtShareGPT format = "sharegpt"
	fmtMessages format = "messages"
	fmtPrompt   format = "prompt_completion"
)

// form is the format of a file's rows and where it was seen.
type form struct {
	format format
	field  string // that it was known by
	cols   *columns
	// loose says that format was given and cols may go by other names.
	loose bool
}

// kind is what documents the format makes.
func (f format) kind() kind {
	switch f {
	case fmtText:
		return kindText
	case fmtIDs:
		return kindIDs
	}
	return kindChat
}

// marks are fields that formats are known by, in the order in which they count.
var marks = []struct {
	field  string
	format format
}{
	{"input_ids", fmtIDs}, {"messages", fmtMessages}, {"conversations", fmtShareGPT}, {"conversation", fmtShareGPT},
	{"instruction", fmtAlpaca}, {"prompt", fmtPrompt}, {"text", fmtText},
}

// responses are the names that an answer to "prompt" goes by.
var responses = []string{"completion", "response"}

// recognised is the form of a row by the usual names of its fields.
func recognised(fields map[string]json.RawMessage) (form, error) {
	if given(fields["text"]) != nil && given(fields["input_ids"]) != nil {
		return form{}, errors.New("both text and input_ids; keep the one to train on")
	}
	for _, m := range marks {
		raw := given(fields[m.field])
		if raw == nil {
			continue
		}
		f := form{format: m.format, field: m.field, cols: columnsOf(m.format)}
		switch m.format {
		case fmtPrompt:
			i := slices.IndexFunc(responses, func(r string) bool { return given(fields[r]) != nil })
			if i < 0 {
				continue
			}
			f.cols.Response = responses[i]
		case fmtMessages, fmtShareGPT:
			f = chatForms(f, raw)
		}
		return f, nil
	}
	for _, m := range marks {
		if raw, ok := fields[m.field]; ok && given(raw) == nil {
			return form{}, missingField(m.field, fields)
		}
	}
	return form{}, errNoForm(fields)
}

// chatForms tells messages of "role" and "content" from those of "from" and
// "value", whatever the field is called.
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

// formIn is the form that all rows of a data set have; false: it goes by each
// file's first row.
func (s *Spec) formIn(set int) (form, bool) {
	d := &s.sets[set]
	if d.Format != "" {
		return form{format: d.Format, cols: d.Columns}, true
	}
	switch f := format(s.Format); f {
	case fmtAlpaca, fmtShareGPT, fmtMessages, fmtPrompt:
		return form{format: f, cols: s.Columns.rename(columnsOf(f), f), loose: true}, true
	}
	return form{}, false
}

// agree is the form of a row, which must be of the format its file began with.
func (f form) agree(names Columns, fields map[string]json.RawMessage) (form, error) {
	g, err := names.formOf(fields)
	if err == nil && g.format != f.format {
		err = fmt.Errorf("this is %s, and what came before is %s (field %q); a file holds rows of one format", g.format, f.format, g.field)
	}
	return g, err
}

// class is a kind of bad row that is counted by itself.
type class string

const classUnsupervised class = "unsupervised"

// badRow is what is wrong with a row; skip_bad_rows leaves it out.
type badRow struct {
	class class
	err   error
}

func (e *badRow) Error() string { return e.err.Error() }

// Unwrap is what was wrong.
func (e *badRow) Unwrap() error { return e.err }
