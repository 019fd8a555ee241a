package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Dataset is rows of tokens, read from a memory-mapped token cache. Its methods may be called concurrently, but not
// after Close.
type Dataset struct {
	spec     Spec
	c        *cache
	file     string // path of the token cache
	packing  bool
	warnings []string
	problems []string // problems of single documents, one sentence each

	rows int64
	mix  mix
	// first is set if documents can have several rows. first[p] is then the first row of the document at position
	// p of the mix (the order of all documents). first[n], after the last document, is the number of rows.
	first []int64
	// fit is set if every row holds whole documents in another order or selection than the mix (see mix). Without
	// fitAt, row i is document fit[i]. With fitAt, row i has the documents fit[fitAt[i]:fitAt[i+1]].
	fit, fitAt []int64
	// drop lists, in rising order, the packed rows that are left out since no token in them is supervised.
	drop []int64
	val  []int64 // rows of Eval in rising order

	hidden, binary int   // skipped files
	truncated      int64 // rows truncated to MaxSeqLen
	cutTokens      int64 // tokens cut from these rows and from dropped documents
	dropped        int64 // documents left out since nothing before the cut is supervised
	cutAt, dropAt  []string
}

// Open reads the data set's files and writes the token cache, or opens the cache if it is current. Method Warnings
// lists what was skipped or truncated. Errors name the file, the line, the value and what to do. Call Close after
// use.
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

// openCache opens the token cache of sources. If there is none, or the sources have changed, it builds the cache.
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

// Cache returns the path of the token cache and its size in bytes.
func (d *Dataset) Cache() (file string, bytes int64) { return d.file, int64(len(d.c.mapped)) }

func (d *Dataset) warnf(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

func (d *Dataset) warnSkipped() {
	var unsupported []string
	for _, f := range d.c.Files {
		if f.Unsupported != "" {
			unsupported = append(unsupported, f.Path+": "+f.Unsupported)
		} else if f.Binary {
			d.binary++
		}
	}
	if n := len(unsupported); n > 0 {
		d.warnf("skipped %d file(s) that mt does not read, the first %s", n, unsupported[0])
	}
	if n := d.hidden + d.binary; n > 0 {
		d.warnf("skipped %d file(s): %d binary (they hold a NUL byte), %d hidden (their name starts with a dot)", n, d.binary, d.hidden)
	}
	d.binary += len(unsupported)
}

// warnRows adds warnings about skipped rows and about documents with problems.
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
	for _, r := range []struct {
		n    int64
		what string
	}{
		{d.c.Joined, "the parts of a content as one text"}, {d.c.Decoded, "arguments of calls as objects, which the rows have as JSON in strings"},
		{d.c.Encoded, "arguments of calls as JSON in strings, which the rows have as objects"}, {d.c.Reshaped, "functions wrapped, text as a list of parts, or thoughts in reasoning_content"},
	} {
		if r.n > 0 {
			problem("in %d %s the chat template does not take the row as it is; it was given %s; mt data inspect names the first", r.n, one, r.what)
		}
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

// valStream is the random stream that chooses Eval's rows. The order of rows in epoch e uses stream
// e, and no epoch has this number, so the choice is independent of every epoch's order.
const valStream = math.MaxUint64

// split chooses the rows of Eval: ValSize of them at random, from the seed.
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

// Rows returns the number of rows of Train and Eval together.
func (d *Dataset) Rows() int { return int(d.rows) }

// Sampler returns a Sampler of Train's rows in the order of the Spec.
func (d *Dataset) Sampler(rowsPerStep int) *Sampler {
	return NewSampler(d.Train(), rowsPerStep, d.spec.Seed, d.spec.Shuffle)
}

// Warnings returns hints for the user, one sentence each. First come the Notes, then how many documents have which
// problem. Report tells where these documents are.
func (d *Dataset) Warnings() []string { return slices.Concat(d.warnings, d.problems) }

// Notes returns the Warnings that concern the data set as a whole, without the counts of documents
// with problems.
func (d *Dataset) Notes() []string { return slices.Clone(d.warnings) }

// Packed reports whether rows are packed.
func (d *Dataset) Packed() bool { return d.packing }

// VocabSize returns the size of the vocabulary; all ids are smaller.
func (d *Dataset) VocabSize() int { return d.spec.VocabSize }

// IsText reports whether documents are tokenized text.
func (d *Dataset) IsText() bool { return d.c.Kind == kindText }

// IsChat reports whether documents are chats, or prompts with answers. Pairs count as chats if a chat template or
// layout wrote at least one of them; otherwise they are texts used unchanged.
func (d *Dataset) IsChat() bool {
	return d.c.Kind == kindChat || d.IsPairs() && d.c.Verbatim < d.c.Docs
}

// IsPairs reports whether documents are pairs of answers.
func (d *Dataset) IsPairs() bool { return d.c.Kind == kindPairs }

// ID identifies the content: the same files read with the same tokenizer have the same ID in any location. MaxSeqLen
// and the order of rows do not change the ID.
func (d *Dataset) ID() string {
	h := sha256.New()
	sums := d.c.Sums
	sums[2] = d.c.IDSum
	fmt.Fprintf(h, "%d %s %s %d %d %08x\n", idVersion, d.c.Tokenizer, d.c.Kind, d.c.Tokens, d.c.Docs, sums)
	for _, f := range d.c.Files {
		switch {
		case f.Partial: // bytes after the last document are irrelevant; the sums above cover the documents
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

// idVersion is part of ID. It is raised when ID is computed in another way, so that IDs of both ways differ.
const idVersion = 1

// Close unmaps and closes the token cache.
func (d *Dataset) Close() error { return d.c.close() }

// Train returns the rows that are not in Eval.
func (d *Dataset) Train() View {
	return View{d: d, rows: int(d.rows) - len(d.val), drop: d.val}
}

// Eval returns the rows that ValSize holds out. If ValSize is a share of the rows, their number is rounded up. Only
// Seed chooses the rows, so the order of training does not matter.
func (d *Dataset) Eval() View { return View{d: d, rows: len(d.val), pick: d.val} }

// All returns Train and Eval together.
func (d *Dataset) All() View { return View{d: d, rows: int(d.rows)} }

// View is a selection of a data set's rows in file order. The zero value has no rows.
type View struct {
	d    *Dataset
	rows int
	pick []int64 // not nil: the view's rows
	drop []int64 // otherwise all rows but these, in rising order
}

// Rows returns the number of rows.
func (v View) Rows() int { return v.rows }

// Row returns row i of the view. The caller owns the slices.
func (v View) Row(i int) Row {
	var r Row
	v.fill(i, &r)
	return r
}

func (v View) fill(i int, r *Row) { v.d.fill(v.at(i), r) }

// at returns the number that row i of the view has in the data set.
func (v View) at(i int) int {
	switch {
	case i < 0 || i >= v.rows:
		panic(fmt.Sprintf("data: row %d of %d", i, v.rows))
	case v.pick != nil:
		return int(v.pick[i])
	}
	return int(without(v.drop, int64(i)))
}

// Longest returns the tokens of the view's longest row; 0: the view is empty.
func (v View) Longest() int {
	longest := 0
	for i := range v.rows {
		longest = max(longest, int(v.d.tokens(v.at(i))))
		if longest == int(v.d.longestRow()) {
			break // no row can be longer
		}
	}
	return longest
}

// without returns the i-th number, counted from 0, among the whole numbers that are not in drop. drop is sorted.
func without(drop []int64, i int64) int64 {
	return i + int64(sort.Search(len(drop), func(k int) bool { return drop[k]-int64(k) > i }))
}

// bigramVocab is the largest vocabulary for which BigramLoss works. Its table has a number for each pair of tokens,
// so the memory grows with the square of the vocabulary.
const bigramVocab = 4096

// BigramLoss returns the loss over eval of a bigram model, which sees only the previous token, in nats per token. The
// model counts the supervised tokens of train with add-one smoothing, p(b|a) = (n(ab)+1) / (n(a)+V), V the vocabulary
// size.
func BigramLoss(train, eval View) (float64, error) {
	if train.Rows() == 0 || eval.Rows() == 0 {
		return 0, fmt.Errorf("bigram loss: %d rows to fit and %d to score; both must be there", train.Rows(), eval.Rows())
	}
	vocab := max(train.d.VocabSize(), eval.d.VocabSize())
	if vocab > bigramVocab {
		return 0, fmt.Errorf("bigram loss: a vocabulary of %d is more than %d", vocab, bigramVocab)
	}
	pairs, firsts := make([]int64, vocab*vocab), make([]int64, vocab)
	err := train.eachPair(func(a, b int32) {
		pairs[int(a)*vocab+int(b)]++
		firsts[a]++
	})
	if err != nil {
		return 0, err
	}
	var sum float64
	var n int64
	err = eval.eachPair(func(a, b int32) {
		sum -= math.Log(float64(pairs[int(a)*vocab+int(b)]+1) / float64(firsts[a]+int64(vocab)))
		n++
	})
	return sum / float64(n), err
}

// eachPair calls f for each supervised token b and the token a before it, in order. Errors are from Dataset.Read.
func (v View) eachPair(f func(a, b int32)) error {
	return v.d.Read(func() { v.pairs(f) })
}

func (v View) pairs(f func(a, b int32)) {
	var r Row
	for i := range v.rows {
		v.fill(i, &r)
		first, labels := 0, r.labels()
		for n := range r.docs() {
			for t := first + 1; t < first+n; t++ {
				if labels[t] != IgnoreIndex {
					f(r.IDs[t-1], labels[t])
				}
			}
			first += n
		}
	}
}
