package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// class is a kind of bad row that has a count of its own.
type class string

const classUnsupervised class = "unsupervised"

// badRow is the error of one row. With skip_bad_rows the row is left out.
type badRow struct {
	class class
	err   error
}

func (e *badRow) Error() string { return e.err.Error() }

// Unwrap is what was wrong.
func (e *badRow) Unwrap() error { return e.err }
