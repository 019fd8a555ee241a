package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Dataset is rows of tokens, read from a token cache that is mapped into
// memory. Its methods may be called from several goroutines at once, but none
// after Close.
type Dataset struct {
	spec     Spec
	c        *cache
	file     string // the token cache
	packing  bool
	warnings []string
	problems []string // what is wrong with single documents, one sentence each

	rows int64
	mix  mix
	// first[p] is the first row of the document at place p of the mix, where documents
	// make more than one row. first[n], behind the last, is the number of rows.
	first []int64
	// fit are the documents of the rows, where rows are made of whole documents and do
	// not simply follow the mix. Row i has fit[fitAt[i]:fitAt[i+1]] where there is a
	// fitAt, else fit[i].
	fit, fitAt []int64
	// drop are the packed rows that are left out, in rising order.
	drop []int64
	val  []int64 // the rows of Eval, in rising order

	hidden, binary int   // files that were skipped
	truncated      int64 // rows that were cut to MaxSeqLen
	cutTokens      int64 // tokens cut from those rows, and from dropped documents
	dropped        int64 // documents with nothing supervised before the cut
	cutAt, dropAt  []string
}

// Open reads the data set, or finds it in the token cache. Warnings says what
// was skipped or cut. The error names file, line and value, and the way out.
// Close the data set when it is no longer needed.
func Open(spec Spec) (_ *Dataset, err error) {
	d := &Dataset{}
	if d.spec, err = spec.resolved(); err != nil {
		return nil, asSpecError(err)
	}
	sources, hidden, err := findSources(&d.spec)
	if err != nil {
		return nil, asSpecError(err)
	}
	d.hidden, d.warnings = hidden, d.spec.notes
	if err := d.openCache(sources); err != nil {
		return nil, err
	}
	if fault := d.Read(func() { err = d.arrange() }); fault != nil {
		err = fault
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.warnSkipped()
	if d.IsChat() {
		d.warnings = append(d.warnings, d.spec.unreadVars()...)
	}
	d.warnRows()
	return d, nil
}

// openCache takes the cache of sources. Where it does not hold what they hold now, it is made anew.
func (d *Dataset) openCache(sources []source) error {
	name, err := cachePath(&d.spec, sources)
	if err != nil {
		return err
	}
	d.file = name
	d.c, err = openCache(name, &d.spec)
	switch {
	case err == nil && d.c.isOf(sources):
		sweep(name)
		return nil
	case err == nil:
		if err := d.c.close(); err != nil {
			return err
		}
	case !errors.Is(err, errNoCache):
		d.warnf("token cache %s is damaged (%v) and was made anew", name, err)
	}
	note, err := buildCache(name, &d.spec, sources)
	if err != nil {
		return err
	}
	if note != "" {
		d.warnf("%s", note)
	}
	if d.c, err = openCache(name, &d.spec); err != nil {
		return fmt.Errorf("token cache %s, just written: %w", name, err)
	}
	sweep(name)
	return nil
}

// Cache is the token cache's file and its size in bytes.
func (d *Dataset) Cache() (file string, bytes int64) { return d.file, int64(len(d.c.mapped)) }

func (d *Dataset) warnf(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

func (d *Dataset) warnSkipped() {
	var aliens []string
	for _, f := range d.c.Files {
		if f.Alien != "" {
			aliens = append(aliens, f.Path+": "+f.Alien)
		} else if f.Binary {
			d.binary++
		}
	}
	if n := len(aliens); n > 0 {
		d.warnf("skipped %d file(s) that mt does not read, the first %s", n, aliens[0])
	}
	if n := d.hidden + d.binary; n > 0 {
		d.warnf("skipped %d file(s): %d binary (they hold a NUL byte), %d hidden (their name starts with a dot)", n, d.binary, d.hidden)
	}
	d.binary += len(aliens)
}

// warnRows notes what is wrong with rows and documents.
func (d *Dataset) warnRows() {
	if n := d.c.Skipped; n > 0 {
		d.warnf("skipped %d bad row(s) (skip_bad_rows); the first: %s", n, d.c.FirstSkipped)
	}
	problem := func(format string, args ...any) { d.problems = append(d.problems, fmt.Sprintf(format, args...)) }
	one := "chat(s)"
	if d.IsPairs() {
		one = "pair(s)"
	}
	if n := d.c.LeftText; n > 0 {
		problem("in %d %s the chat template leaves out text of a message; mt data inspect names the first", n, one)
	}
	if n := d.c.LeftCalls; n > 0 {
		problem("in %d %s the chat template leaves out tools or calls of them; mt data inspect names the first", n, one)
	}
	if n := d.c.LeftThinking; n > 0 {
		problem("in %d %s the chat template leaves out thoughts, as many do with those of earlier answers; mt data inspect names the first", n, one)
	}
	if n := d.c.PromptCut; n > 0 {
		problem("in %d pair(s) the end of the prompt has other tokens before an answer than alone, and counts as the answer's; mt data inspect names the first", n)
	}
	if n := d.c.DoubledBOS; n > 0 {
		problem("%d document(s) begin with two BOS tokens: the text has one that the tokenizer or template adds again", n)
	}
	if n := d.c.MissingEOS; n > 0 && d.c.Kind == kindText {
		problem("%d text(s) do not end with an end-of-text token: the tokenizer names none (eos_token in tokenizer_config.json)", n)
	} else if n > 0 {
		problem("in %d %s a supervised turn does not end with a special token, so the model learns no end of turn: look at the chat template", n, one)
	}
}

// valStream makes the choice of Eval's rows independent of the order of any epoch.
const valStream = math.MaxUint64

// split chooses Eval's rows.
func (d *Dataset) split() error {
	v := d.spec.ValSize
	n := int64(v)
	if v < 1 {
		n = int64(math.Ceil(v * float64(d.rows)))
	}
	if n >= d.rows {
		return &SpecError{"val_size", fmt.Errorf("val_size %v takes %d of %d rows and leaves none to train on; lower it", v, n, d.rows)}
	}
	p := newPermutation(d.rows, d.spec.Seed, valStream)
	for i := range n {
		d.val = append(d.val, p.at(i))
	}
	slices.Sort(d.val)
	return nil
}

// Rows is the number of rows, Train's and Eval's together.
func (d *Dataset) Rows() int { return int(d.rows) }

// Sampler gives Train's rows in the order that the Spec asks for.
func (d *Dataset) Sampler(rowsPerStep int) *Sampler {
	return NewSampler(d.Train(), rowsPerStep, d.spec.Seed, d.spec.Shuffle)
}

// Warnings are what a user should know, one sentence each: the Notes, and the
// documents that Report names for what they lack or bring twice.
func (d *Dataset) Warnings() []string { return slices.Concat(d.warnings, d.problems) }

// Notes are the Warnings without what Report tells of single documents.
func (d *Dataset) Notes() []string { return slices.Clone(d.warnings) }

// Packed tells whether rows are packed.
func (d *Dataset) Packed() bool { return d.packing }

// VocabSize is the size of the vocabulary: all ids are below it.
func (d *Dataset) VocabSize() int { return d.spec.VocabSize }

// ID stands for the content: the same files, read with the same tokenizer, have the
// same ID, wherever they lie. The length and the order of rows do not change it.
func (d *Dataset) ID() string {
	h := sha256.New()
	sums := d.c.Sums
	sums[2] = d.c.IDSum
	fmt.Fprintf(h, "%d %s %s %d %d %08x\n", idVersion, d.c.Tokenizer, d.c.Kind, d.c.Tokens, d.c.Docs, sums)
	for _, f := range d.c.Files {
		switch {
		case f.Partial: // what was read beyond the documents has no meaning; their sums are above
			fmt.Fprintf(h, "the first %d\n", f.Docs)
		case f.Docs > 0:
			fmt.Fprintf(h, "%s %d\n", f.SHA256, f.Docs)
		}
	}
	if d.mix.seq != nil {
		fmt.Fprintf(h, "%x\n", d.mix.id)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// idVersion changes when ID is computed in another way.
const idVersion = 1

// Close gives the memory back.
func (d *Dataset) Close() error { return d.c.close() }
