package data

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"mt/jinja"
	"mt/tokenizer"
)

// fatalRow is an error found in one row that every row would have.
type fatalRow struct{ err error }

func (e *fatalRow) Error() string { return e.err.Error() }

// Unwrap is what was wrong.
func (e *fatalRow) Unwrap() error { return e.err }

func newEncoder(s *Spec) *encoder {
	e := &encoder{spec: s, tok: s.Tokenizer, abandoned: s.stopped}
	if e.tok != nil {
		e.around = specialOf(e.tok)
	}
	if s.chat.tmpl != nil {
		own := *s.chat.tmpl
		own.Stop = func() bool { return e.abandoned() }
		e.tmpl = &own
	}
	return e
}

// place says, for an error, where a row is, or names a file that is one document.
func place(path, unit string, n int64) string {
	switch {
	case n == 0:
		return path
	case unit == unitLine:
		return fmt.Sprintf("%s:%d", path, n)
	}
	return fmt.Sprintf("%s: row %d", path, n)
}

// encode turns the records of a chunk into tokens. It ends early behind a row whose error
// ends the reading; or when nobody wants the tokens any more, with c.err ErrStopped.
func (e *encoder) encode(c *chunk) {
	for _, r := range c.recs {
		if e.abandoned() {
			c.err = ErrStopped
			return
		}
		d := encoded{line: r.n, first: r.first, last: r.last, from: len(c.ids), labels: -1, err: r.err}
		if d.err == nil {
			e.record(c, r, &d)
		}
		if errors.Is(d.err, jinja.ErrStopped) {
			c.err = ErrStopped
			return
		}
		d.to, d.ends = len(c.ids), d.fatal != nil || d.err != nil && !e.spec.SkipBadRows
		if d.err == nil && d.fatal == nil && d.kind == kindIDs && len(e.row.ends) > 1 {
			c.docs = append(c.docs, divided(d, e.row.ends)...)
		} else {
			c.docs = append(c.docs, d)
		}
		if d.ends {
			return
		}
	}
	c.buf = nil
}

// divided is the row d as the documents in it, each of which ends at one of ends.
func divided(d encoded, ends []int) []encoded {
	out := make([]encoded, len(ends))
	from := 0
	for i, end := range ends {
		out[i] = d
		out[i].from, out[i].to = d.from+from, d.from+end
		if d.labels >= 0 {
			out[i].labels = d.labels + from
		}
		if i > 0 {
			out[i].flags |= flagSameRow
		}
		from = end
	}
	return out
}

// record turns a record into tokens and appends them to the chunk's.
func (e *encoder) record(c *chunk, r record, d *encoded) {
	raw := c.buf[r.from:r.to]
	var err error
	if r.n == 0 {
		d.kind = kindText
		err = e.file(c, r, raw)
	} else {
		err = e.rowTokens(c, r, raw, d)
	}
	if fatal, ok := err.(*fatalRow); ok {
		d.fatal = fatal.err
		return
	}
	if d.err = err; err != nil {
		return
	}
	c.ids = append(c.ids, e.ids...)
	if d.labels >= 0 {
		d.labels = len(c.labs)
		c.labs = append(c.labs, e.labs...)
	}
	if d.kind == kindPairs {
		d.cut = e.cut
	}
	if d.kind != kindIDs && d.first {
		d.flags |= e.doubled()
	}
	if d.kind == kindText && d.last && len(e.around.after) == 0 {
		d.flags |= flagOpenEnd | flagMissingEOS
	}
}

// within is an error where ids has an id for which the model has no row. A tokenizer may
// have more tokens than its model, as Gemma 3's has one for images.
func (e *encoder) within(ids []int32) error {
	for _, id := range ids {
		if int(id) >= e.spec.VocabSize {
			return fmt.Errorf("the token %q is number %d, and the model's vocabulary has %d; leave it out, or take the model's own tokenizer",
				e.tok.Token(id), id, e.spec.VocabSize)
		}
	}
	return nil
}

// listsOf is Spec.lists of a data set.
func (e *encoder) listsOf(set int) func(string, []byte) bool {
	if e.lists == nil || e.listsSet != set {
		e.lists, e.listsSet = e.spec.lists(set), set
	}
	return e.lists
}

// file sets e.ids to the tokens of a file that is one document, or of a piece of it.
func (e *encoder) file(c *chunk, r record, text []byte) error {
	if _, err := e.spec.tokenizerFor(c.src.path); err != nil {
		return &fatalRow{err}
	}
	err := e.text(text, "the text", r.first, r.last)
	if err == nil {
		err = e.within(e.ids)
	}
	if err != nil && !(r.first && r.last) { // earlier pieces are written already, so the row cannot be left out
		return &fatalRow{fmt.Errorf("%s: %w", c.src.path, err)}
	}
	return err
}

// rowTokens reads a row and sets e.ids, and e.labs where the row has labels.
func (e *encoder) rowTokens(c *chunk, r record, raw []byte, d *encoded) error {
	fields, err := rowFields(raw, e.listsOf(c.src.set))
	if err != nil {
		return err
	}
	form := c.form
	switch {
	case !c.known:
		form, err = e.spec.formOf(c.src.set, fields)
	case !c.given:
		form, err = form.agree(e.spec, c.src.set, fields)
	case form.loose:
		if own, none := e.spec.formOf(c.src.set, fields); none == nil && own.format == form.format {
			form = own
		}
	}
	where := place(c.src.path, c.unit, r.n)
	if fatal, ok := err.(*fatalRow); ok {
		return &fatalRow{fmt.Errorf("%s: %w", where, fatal.err)}
	} else if err != nil {
		return err
	}
	if c.types != nil {
		unpad(fields, c.types, form.cols)
	}
	if err := e.row.fill(form, fields, e.spec.VocabSize); err != nil && len(withoutNaN(raw)) != len(raw) {
		return fmt.Errorf("%w (the row has NaN or Infinity, which count as null)", err)
	} else if err != nil {
		return err
	}
	d.first, d.last, d.kind = true, true, e.row.kind
	if d.kind == kindIDs {
		if e.ids = append(e.ids[:0], e.row.ids...); e.row.labels != nil {
			e.labs, d.labels = append(e.labs[:0], e.row.labels...), 0
		}
		return nil
	}
	if _, err := e.spec.tokenizerFor(where); err != nil {
		return &fatalRow{err}
	}
	switch d.kind {
	case kindText:
		err = e.text(e.row.text, "text", true, true)
	case kindPairs:
		if e.spec.TrainOnPrompt {
			return &fatalRow{fmt.Errorf("%s: train_on_prompt: of a pair the answers alone are trained on; leave it out", where)}
		}
		d.labels = 0
		d.flags, err = e.pair(e.row.pair)
	default:
		d.labels = 0
		d.flags, err = e.chat(e.row.chat)
	}
	switch {
	case err == nil:
		return e.within(e.ids)
	case err == e.spec.chat.err:
		return &fatalRow{fmt.Errorf("%s: %w", where, err)}
	}
	return err
}

// text sets e.ids to the tokens of a text, or of a piece of one.
func (e *encoder) text(text []byte, name string, first, last bool) (err error) {
	if !utf8.Valid(text) && e.tok.ID() != tokenizer.Bytes().ID() { // in the byte vocabulary every byte is a token
		return notUTF8(name, text)
	}
	e.begin()
	before := len(e.ids)
	if !first {
		e.ids, before = e.ids[:0], 0
	}
	if e.ids, err = e.tok.Encode(e.ids, text); err != nil {
		return err
	}
	own := e.ids[before:]
	if first && before > 0 && len(own) > 0 && own[0] == e.ids[before-1] {
		e.ids = e.ids[1:] // the text itself begins with BOS
	}
	if !last {
		return nil
	}
	after := e.around.after
	if len(own) > 0 && len(after) > 0 && own[len(own)-1] == after[0] {
		after = after[1:] // the text itself ends with EOS
	}
	if e.ids = append(e.ids, after...); first && len(e.ids) < 2 {
		return fmt.Errorf("the text makes %d token(s); a row takes at least 2, one to see and one to predict; remove it", len(e.ids))
	}
	return nil
}
