package data

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"mt/data/jinja"
	"mt/data/tokenizer"
)

// fatalRow is the error of a row that every other row would meet too, such as a missing tokenizer.
// So skip_bad_rows does not skip the row; reading ends.
type fatalRow struct{ err error }

func (e *fatalRow) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *fatalRow) Unwrap() error { return e.err }

// encoder turns documents into tokens. Each goroutine has an encoder of its own.
type encoder struct {
	spec      *Spec
	tok       tokenizer.Tokenizer
	row       jsonRow
	ids, labs []int32
	cut       int // of a pair: start of the rejected document in ids
	starts    []int
	muted     []jinja.Span // ranges of ids that a layout wrote for turns excluded from training (weight 0)
	paused    []int        // positions in ids where the assistant's turn pauses for other messages
	around    special
	// tmpl is the chat template for the current row, taken from templates; nil: the row needs none.
	// The map templates has this encoder's own copies of the chat templates, by name, since a
	// copy's Stop function belongs to one encoder.
	tmpl      *jinja.Template
	templates map[string]*jinja.Template
	ends      map[*jinja.Template]*answerEnds      // end of answers of each template, found on demand
	abandoned func() bool                          // reports that nobody wants the encoder's tokens any more
	lists     func(name string, value []byte) bool // Spec.lists of data set listsSet
	listsSet  int
}

// special holds the tokens that a tokenizer adds before and after each text, and the ids of BOS and EOS.
type special struct {
	before, after []int32
	bos, eos      int32 // IgnoreIndex: none
}

// specialOf finds the tokens that t adds before and after a text. To find them, it encodes a text of one token and
// looks at the tokens around it.
func specialOf(t tokenizer.Tokenizer) special {
	s := special{bos: IgnoreIndex, eos: IgnoreIndex}
	if id, ok := t.BOS(); ok {
		s.bos = id
	}
	if id, ok := t.EOS(); ok {
		s.eos = id
	}
	probe := int32(0)
	for int(probe) < t.VocabSize()-1 && t.IsSpecial(probe) {
		probe++
	}
	for _, id := range t.AddSpecial([]int32{probe}) {
		switch {
		case id == probe:
			s.after = []int32{}
		case s.after == nil:
			s.before = append(s.before, id)
		default:
			s.after = append(s.after, id)
		}
	}
	if s.eos != IgnoreIndex && (len(s.after) == 0 || s.after[len(s.after)-1] != s.eos) {
		s.after = append(s.after, s.eos)
	}
	return s
}

// class is a reason why a row is bad; the cache counts some classes separately.
type class string

const classUnsupervised class = "unsupervised"

// badRow is an error that concerns only one row. With skip_bad_rows set, such rows are left out.
type badRow struct {
	class class
	err   error
}

func (e *badRow) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *badRow) Unwrap() error { return e.err }

// place returns the location of a row for an error, such as FILE, line 3. unit is line or row, n the number. n 0: the
// whole file is one document.
func place(path, unit string, n int64) string {
	switch {
	case n == 0:
		return path
	case unit == unitLine:
		return fmt.Sprintf("%s:%d", path, n)
	}
	return fmt.Sprintf("%s: row %d", path, n)
}

func newEncoder(s *Spec) *encoder {
	e := &encoder{spec: s, tok: s.Tokenizer, abandoned: s.stopped}
	if e.tok != nil {
		e.around = specialOf(e.tok)
	}
	e.templates = map[string]*jinja.Template{}
	for _, name := range []string{jinja.DefaultTemplate, jinja.ToolTemplate, jinja.DocumentsTemplate} {
		t := s.chat.tmpl
		if t != nil && name != jinja.DefaultTemplate {
			t = t.Named(name)
		}
		if t != nil {
			own := *t
			own.Stop = func() bool { return e.abandoned() }
			e.templates[name] = &own
		}
	}
	e.tmpl = e.templates[jinja.DefaultTemplate]
	return e
}

// needTokenizer returns an error if the Spec has no tokenizer, otherwise nil. `where` is the location of the text that
// needs it.
func (s *Spec) needTokenizer(where string) error {
	switch {
	case s.Tokenizer != nil:
		return nil
	case s.TokenizerErr != nil:
		return fmt.Errorf("%s: text needs a tokenizer: %w", where, s.TokenizerErr)
	}
	return fmt.Errorf("%s: text needs a tokenizer, and there is none; give input_ids (JSONL) instead", where)
}

// encode turns the records of a chunk (rows, or parts of a text) into tokens. It stops after a row
// whose error ends the reading. It also stops if the builder no longer needs the chunk; c.err is
// then ErrStopped.
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

// divided splits d, an encoded row of token ids, into its documents. The list ends has the end of
// each document, in tokens from the start of the row.
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

// record turns the record r of chunk c into tokens and appends them to the chunk. It sets d to the
// tokens' range and kind, or to the row's error.
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
		d.flags |= e.doubledBOS()
	}
	if d.kind == kindText && d.last && len(e.around.after) == 0 {
		d.flags |= flagOpenEnd | flagMissingEOS
	}
}

// within returns an error if an id is not smaller than the size of the model's vocabulary. A tokenizer may have more
// tokens than its model: Gemma 3's has tokens for images.
func (e *encoder) within(ids []int32) error {
	for _, id := range ids {
		if int(id) >= e.spec.VocabSize {
			return fmt.Errorf("the token %q is number %d, and the model's vocabulary has %d; leave it out, or take the model's own tokenizer",
				e.tok.Token(id), id, e.spec.VocabSize)
		}
	}
	return nil
}

// listsOf returns the function that Spec.lists makes for data set number set. It keeps the function of the latest
// data set for the next call.
func (e *encoder) listsOf(set int) func(string, []byte) bool {
	if e.lists == nil || e.listsSet != set {
		e.lists, e.listsSet = e.spec.lists(set), set
	}
	return e.lists
}

// file sets e.ids to the tokens of text. The record r is a whole file that is one document, or a
// part of such a file.
func (e *encoder) file(c *chunk, r record, text []byte) error {
	if err := e.spec.needTokenizer(c.src.path); err != nil {
		return &fatalRow{err}
	}
	err := e.text(text, "the text", r.first, r.last)
	if err == nil {
		err = e.within(e.ids)
	}
	if err != nil && !(r.first && r.last) { // earlier pieces are written, so the row cannot be left out
		return &fatalRow{fmt.Errorf("%s: %w", c.src.path, err)}
	}
	return err
}

// rowTokens parses the row raw and sets e.ids, and e.labs if the row has labels. It sets the kind and flags of d.
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
	if err := e.spec.needTokenizer(where); err != nil {
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

// begin empties the encoder's buffers and sets e.ids to the tokens that the tokenizer adds before a text.
func (e *encoder) begin() {
	e.ids, e.labs, e.starts = append(e.ids[:0], e.around.before...), e.labs[:0], e.starts[:0]
}

// chat sets e.ids and e.labs to the tokens and labels of a conversation, as the template or layout writes it. It
// returns the document's flags (flagOpenEnd and so on).
func (e *encoder) chat(v *conversation) (flags uint64, err error) {
	form := &e.spec.chat
	e.paused = e.paused[:0]
	switch {
	case form.tmpl != nil:
		flags, err = e.rendered(v)
	case form.layout != nil:
		err = e.layOut(form.layout, v)
	case v.plain && v.verbatim:
		err = e.verbatim(v)
	case v.plain:
		err = e.layOut(defaultLayout, v)
	default:
		err = form.err
	}
	if err != nil {
		return 0, err
	}
	if len(e.ids) < 2 || supervised(e.labs) == 0 {
		return 0, &badRow{class: classUnsupervised, err: errors.New("no token is supervised: the assistant's turns are empty, or of weight 0; remove the row")}
	}
	return flags | e.openEnd(), nil
}

// text sets e.ids to the tokens of a text or of a piece of a text. first and last say whether it is the first or last
// piece: only these get the tokens that stand before and after a text. name is the text's origin in errors.
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

// Prompt returns the token ids of a text that a model shall continue. The tokens that the tokenizer adds before a
// text are included; those after a text, such as EOS, are not.
func Prompt(t tokenizer.Tokenizer, text []byte) ([]int32, error) {
	e := &encoder{spec: &Spec{}, tok: t, around: specialOf(t)}
	err := e.text(text, "the prompt", true, false)
	return e.ids, err
}

// Flags that the token cache stores for a document, most of them to count problems.
const (
	flagOpenEnd      uint64 = 1 << iota // a supervised turn does not end with a special token, or a text does not end with EOS
	flagDoubledBOS                      // begins with two BOS
	flagMissingEOS                      // like flagOpenEnd, but white space may follow the special token
	flagLeftThinking                    // the template dropped thoughts
	flagLeftText                        // the template dropped text of a message
	flagLeftCalls                       // the template dropped tools or calls
	flagVerbatim                        // of a pair: plain text that no template writes
	flagPromptCut                       // of a pair: the prompt's last tokens change when an answer follows
	flagJoined                          // the template got the parts of a content as one text
	flagDecoded                         // the template got call arguments as objects instead of JSON strings
	flagEncoded                         // the template got call arguments as JSON strings instead of objects
	flagReshaped                        // the template got functions, texts or thoughts in another shape
)

// flagSameRow marks a document that came from the same row of the data set as the previous document. Only a data set
// with a column input_ids can have several documents in one row.
const flagSameRow uint64 = 1 << 15

// idFlags are the flags that count for a data set's ID. A checkpoint stores this ID and compares it when a run
// resumes. Flags added since the ID was defined stay out, so that the IDs of old checkpoints remain valid.
const idFlags = flagOpenEnd | flagDoubledBOS

// piece appends the tokens of text and an EOS to e.ids, and their labels to e.labs. If sup is true,
// the EOS and all tokens that start at byte offset from or later are supervised.
func (e *encoder) piece(text string, from int, sup bool) (err error) {
	first := len(e.ids)
	if e.ids, e.starts, err = e.tok.EncodeSpans(e.ids, e.starts[:0], []byte(text)); err != nil {
		return err
	}
	e.labs = ignored(e.labs, len(e.ids)-len(e.labs))
	if sup {
		e.supervise(first, jinja.Span{From: from, To: len(text)})
	}
	if e.around.eos == IgnoreIndex {
		return nil
	}
	e.ids, e.labs = append(e.ids, e.around.eos), append(e.labs, IgnoreIndex)
	if sup {
		e.labs[len(e.labs)-1] = e.around.eos
	}
	return nil
}

// verbatim sets e.ids to the tokens of a prompt, directly followed by its completion and EOS. No chat template writes
// anything between.
func (e *encoder) verbatim(v *conversation) error {
	if v.tools != nil {
		return defaultLayout.noTools()
	}
	e.begin()
	var prompt, answer string
	for _, m := range v.messages {
		_, text, err := plainTurn(m, "default")
		switch {
		case err != nil:
			return err
		case roleOf(m) == "assistant":
			answer = text
		case roleOf(m) == "system":
			prompt += text + "\n"
		default:
			prompt += text
		}
	}
	if answer == "" {
		return nil // nothing is supervised
	}
	err := e.piece(prompt+answer, len(prompt), true)
	e.whole()
	return err
}

// doubledBOS returns flagDoubledBOS if e.ids begins with two BOS, otherwise 0.
func (e *encoder) doubledBOS() uint64 {
	if bos := e.around.bos; bos != IgnoreIndex && len(e.ids) > 1 && e.ids[0] == bos && e.ids[1] == bos {
		return flagDoubledBOS
	}
	return 0
}
