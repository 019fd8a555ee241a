package data

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxRow is the largest row that is read, in bytes.
const maxRow = 256 << 20

// rowReader gives the rows of a file in order.
type rowReader interface {
	// next appends a row's JSON to dst; n is its number, from 1. At the end of the file
	// the error is io.EOF. A *badRow is an error of this row alone: reading can go on.
	next(dst []byte) (row []byte, n int64, err error)
}

var errRowSize = &badRow{err: fmt.Errorf("the row is larger than %d MiB; split it", maxRow>>20)}

// newJSONRows reads an array of rows, or a row on each line, whichever the file begins with.
// It sets unit to what rows are counted in.
func newJSONRows(r io.Reader, unit *string) rowReader {
	b := bufio.NewReaderSize(r, 256<<10)
	start, _ := b.Peek(4) // an error of reading comes again at the first row
	if bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) {
		_, _ = b.Discard(3)
	}
	for n := 512; ; n *= 2 {
		start, err := b.Peek(min(n, b.Size()))
		start = bytes.TrimLeft(start, " \t\r\n")
		if len(start) > 0 && start[0] == '[' {
			*unit = unitRow
			return &arrayRows{r: b}
		}
		if len(start) > 0 || err != nil || n >= b.Size() {
			*unit = unitLine
			if err := spread(b); err != nil {
				return &lineRows{r: b, broken: err}
			}
			return &lineRows{r: b}
		}
	}
}

// spread is an error where the file begins with a JSON object that goes on over several lines. It names
// a list of objects in that object, which may be the rows.
func spread(b *bufio.Reader) error {
	start, _ := b.Peek(b.Size()) // an error of reading comes again at the first row
	var line jsonScan
	first := bytes.TrimLeft(start, " \t\r\n")
	end := bytes.IndexByte(first, '\n')
	if end < 0 || first[0] != '{' {
		return nil
	}
	if line.scan(first[:end]); line.ended {
		return nil
	}
	d, depth, key, list := json.NewDecoder(bytes.NewReader(withoutNaN(first))), 0, "", ""
	for more := true; more; {
		named := depth == 1 && d.More()
		t, err := d.Token()
		if _, broken := errors.AsType[*json.SyntaxError](err); broken {
			return nil // it is a row that was cut off, and others may follow
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if t == json.Delim('{') && depth == 2 && list == "" {
				list = key
			}
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		default:
			if text, ok := t.(string); ok && named {
				key = text
			}
		}
		more = err == nil && depth > 0
	}
	if list != "" {
		return fmt.Errorf("the file is one object over several lines, with a list of objects in its field %q: if these are the rows, write one on each line (%s)", list, jqOf(list))
	}
	return errors.New("an object goes on over several lines; write each object on one line (jq -c . FILE)")
}

// jqOf is the command that writes each element of a file's list on a line.
func jqOf(field string) string { return fmt.Sprintf("jq -c '.[%q][]' FILE", field) }

// lineRows makes a row of every line that is not blank.
type lineRows struct {
	r *bufio.Reader
	n int64
	// done is the error that next gives after the last line.
	done error
	// broken is the error of the first row, after which there is none; nil: there are rows.
	broken error
}

func (l *lineRows) next(dst []byte) ([]byte, int64, error) {
	from := len(dst)
	if l.broken != nil && l.done == nil {
		l.n, l.done = 1, io.EOF
		return dst, 1, &badRow{err: l.broken}
	}
	for l.done == nil {
		l.n++
		dst, l.done = readLine(l.r, dst[:from], from+maxRow)
		if l.done == errTooLong {
			l.done = nil
			return dst[:from], l.n, errRowSize
		}
		if l.done != nil && l.done != io.EOF {
			break
		}
		if row := bytes.TrimSpace(dst[from:]); len(row) > 0 {
			return append(dst[:from], row...), l.n, nil
		}
	}
	return dst[:from], l.n, l.done
}

var errTooLong = errors.New("a line that is too long")

// readLine appends the next line to dst. Where dst would come to have more than most bytes,
// the rest of the line is passed over.
func readLine(r *bufio.Reader, dst []byte, most int) ([]byte, error) {
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if len(dst)+len(part) > most {
			tooLong = true
		}
		if !tooLong {
			dst = append(dst, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if tooLong && (err == nil || err == io.EOF) {
			err = errTooLong
		}
		return dst, err
	}
}

// arrayRows gives the elements of a JSON array, with one in memory at a time. It only finds
// where each one ends; whoever reads them checks that they are valid JSON.
type arrayRows struct {
	r    *bufio.Reader
	n    int64
	done error
}

func (a *arrayRows) next(dst []byte) ([]byte, int64, error) {
	from := len(dst)
	if a.done == nil {
		a.done = a.begin()
	}
	if a.done != nil {
		return dst, a.n, a.done
	}
	a.n++
	var s jsonScan
	tooLong := false
	for !s.ended {
		if _, err := a.r.Peek(1); err != nil {
			a.done = err
			if err == io.EOF {
				err = &badRow{err: errors.New("the file ends inside this row; it was cut off")}
			}
			return dst[:from], a.n, err
		}
		buf, _ := a.r.Peek(a.r.Buffered())
		n := s.scan(buf)
		if tooLong = tooLong || len(dst)-from+n > maxRow; !tooLong {
			dst = append(dst, buf[:n]...)
		}
		_, _ = a.r.Discard(n)
	}
	if tooLong {
		return dst[:from], a.n, errRowSize
	}
	if len(dst) == from {
		a.done = fmt.Errorf("row %d: an element of the array is missing; it must be [row, row, ...]", a.n)
		return dst, a.n, a.done
	}
	return dst, a.n, nil
}

// begin passes over what stands before the next element. The error is io.EOF at the end of
// the array.
func (a *arrayRows) begin() error {
	b, err := a.mark()
	switch {
	case err == io.EOF:
		return fmt.Errorf("the array does not end after row %d: the file was cut off, or \"]\" is missing", a.n)
	case err != nil:
		return err
	case b == '[' && a.n == 0, b == ',' && a.n > 0:
		next, err := a.mark()
		switch {
		case err == io.EOF:
			return fmt.Errorf("the array does not end after row %d: the file was cut off", a.n)
		case err != nil:
			return err
		case next != ']':
			return a.r.UnreadByte()
		case b == ',':
			return fmt.Errorf("behind row %d stands a comma with no row behind it", a.n)
		}
		return a.end()
	case b == ']':
		return a.end()
	}
	return fmt.Errorf("behind row %d stands %q where a comma or \"]\" is due", a.n, b)
}

// end checks that nothing but white space follows the array.
func (a *arrayRows) end() error {
	b, err := a.mark()
	if err == nil {
		return fmt.Errorf("behind the array stands %q; a file holds one array, or an object a line", b)
	}
	return err
}

// mark is the next byte that is not white space.
func (a *arrayRows) mark() (byte, error) {
	for {
		if b, err := a.r.ReadByte(); err != nil || !isSpace(b) {
			return b, err
		}
	}
}

// jsonScan finds where a JSON value ends.
type jsonScan struct {
	depth           int64
	quoted, escaped bool
	scalar          bool // the value is a number or a word
	ended           bool
}

// scan is how many bytes at the start of b still belong to the value.
func (s *jsonScan) scan(b []byte) int {
	for i, c := range b {
		switch {
		case s.quoted:
			switch {
			case s.escaped:
				s.escaped = false
			case c == '\\':
				s.escaped = true
			case c == '"':
				s.quoted = false
				s.ended = s.depth == 0
			}
		case c == '"' && !s.scalar:
			s.quoted = true
		case c == '{' || c == '[':
			s.depth++
		case (c == '}' || c == ']') && s.depth > 0:
			s.depth--
			s.ended = s.depth == 0
		case s.depth == 0 && (c == ',' || c == ']' || c == '}' || isSpace(c)):
			s.ended = true
			return i
		default:
			s.scalar = s.depth == 0
		}
		if s.ended {
			return i + 1
		}
	}
	return len(b)
}

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
