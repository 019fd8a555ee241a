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

// Dataset is rows of tokens, read from a token cache that is mapped into
// memory. Its methods may be called from several goroutines at once, but none
// after Close.
type Dataset struct {
	spec     Spec
	c        *cache
	cached   bool
	packing  bool
	warnings []string

	rows int64
	// first[d] is document d's first row, where documents make more than one row
	// or none; first[Docs] ends the last. nil: row i is document i, or packed.
	first []int64
	// drop are packed rows that are left out, rising.
	drop []int64
	val  []int64 // the rows of Eval, rising

	hidden, binary int   // files that were skipped
	truncated      int64 // rows that were cut to MaxSeqLen
}

// Open reads the data set, or finds it in the token cache. Warnings says what
// was skipped or cut. The error names file, line and value, and the way out.
// Close the data set when it is no longer needed.
func Open(spec Spec) (_ *Dataset, err error) {
	d := &Dataset{}
	if d.spec, err = spec.resolved(); err != nil {
		return nil, &SpecError{err}
	}
	sources, hidden, err := findSources(&d.spec)
	if err != nil {
		return nil, &SpecError{err}
	}
	d.hidden = hidden
	if err := d.openCache(sources); err != nil {
		return nil, err
	}
	if err := d.layOut(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.warnSkipped()
	return d, nil
}

// openCache takes the cache of sources, made anew where it does not serve.
func (d *Dataset) openCache(sources []source) error {
	name, err := cachePath(&d.spec, sources)
	if err != nil {
		return err
	}
	d.c, err = openCache(name, &d.spec)
	switch {
	case err == nil && d.c.isOf(sources):
		d.cached = true
		return nil
	case err == nil:
		if err := d.c.close(); err != nil {
			return err
		}
	case !errors.Is(err, errNoCache):
		d.warnf("token cache %s is damaged (%v) and was made anew", name, err)
	}
	if err := buildCache(name, &d.spec, sources); err != nil {
		return err
	}
	if d.c, err = openCache(name, &d.spec); err != nil {
		return fmt.Errorf("token cache %s, just written: %w", name, err)
	}
	return nil
}

func (d *Dataset) warnf(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

func (d *Dataset) warnSkipped() {
	for _, f := range d.c.Files {
		if f.Binary {
			d.binary++
		}
	}
	if n := d.hidden + d.binary; n > 0 {
		d.warnf("skipped %d file(s): %d binary (they hold a NUL byte), %d hidden (their name starts with a dot)", n, d.binary, d.hidden)
	}
}

// layOut says which tokens make up each row, and which rows are Eval's.
func (d *Dataset) layOut() error {
	d.packing = d.c.Kind == kindText
	if p := d.spec.Packing; p != nil {
		d.packing = *p
	}
	d.rows = d.c.Docs
	switch {
	case d.packing:
		d.pack()
	case d.c.Kind == kindText:
		d.cut()
	default:
		if err := d.truncate(); err != nil {
			return err
		}
	}
	if d.rows == 0 {
		return errors.New("no row has a token to predict; give more data")
	}
	return d.split()
}

// pack counts packed rows and drops those without a supervised token.
func (d *Dataset) pack() {
	n := int64(d.spec.MaxSeqLen)
	total := (d.c.Tokens + n - 1) / n
	// A document has at least two tokens and, without labels, all but its first
	// are supervised: three in a row always hold one. So only the last row, which
	// may be shorter, is in doubt.
	from := int64(0)
	if !d.c.HasLabels && n > 2 {
		from = total - 1
	}
	var r Row
	for i := from; i < total; i++ {
		d.packed(i, &r)
		if r.Supervised() == 0 {
			d.drop = append(d.drop, i)
		}
	}
	d.rows = total - int64(len(d.drop))
	if n := len(d.drop); n > 1 || n == 1 && d.drop[0] != total-1 {
		d.warnf("left out %d of %d packed rows, which hold no supervised token", n, total)
	}
}

// cut counts the rows that long texts are cut into.
func (d *Dataset) cut() {
	if !d.anyLonger() {
		return
	}
	n := int64(d.spec.MaxSeqLen)
	d.first = make([]int64, d.c.Docs+1)
	for i := range d.c.Docs {
		first, end := d.c.span(i)
		pieces := (end - first + n - 1) / n
		if (end-first)%n == 1 {
			pieces-- // a single token at the end predicts nothing
		}
		d.first[i+1] = d.first[i] + pieces
	}
	d.rows = d.first[d.c.Docs]
}

func (d *Dataset) anyLonger() bool {
	for i := range d.c.Docs {
		if first, end := d.c.span(i); end-first > int64(d.spec.MaxSeqLen) {
			return true
		}
	}
	return false
}

// truncate counts the rows that are longer than MaxSeqLen and checks what is
// left of them.
func (d *Dataset) truncate() error {
	n := int64(d.spec.MaxSeqLen)
	var labels []int32
	for i := range d.c.Docs {
		first, end := d.c.span(i)
		if end-first <= n {
			continue
		}
		d.truncated++
		labels = d.c.readLabels(labels[:0], first, first+n)
		if labels != nil && supervised(labels) == 0 {
			return fmt.Errorf("%s: the row has %d tokens, and none of the first %d (max_seq_len) is supervised; raise max_seq_len or remove the row", d.c.where(i), end-first, n)
		}
	}
	if d.truncated > 0 {
		d.warnf("cut %d of %d rows to %d tokens (max_seq_len)", d.truncated, d.c.Docs, n)
	}
	return nil
}

// valStream sets the choice of Eval's rows apart from the orders of epochs.
const valStream = math.MaxUint64

// split chooses Eval's rows.
func (d *Dataset) split() error {
	v := d.spec.ValSize
	n := int64(v)
	if v < 1 {
		n = int64(math.Ceil(v * float64(d.rows)))
	}
	if n >= d.rows {
		return &SpecError{fmt.Errorf("val_size %v takes %d of %d rows and leaves none to train on; lower it", v, n, d.rows)}
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

// Row is row i in file order. The slices are the caller's.
func (d *Dataset) Row(i int) Row {
	var r Row
	d.fill(i, &r)
	return r
}

// fill makes r row i; it uses r's slices where they suffice.
func (d *Dataset) fill(i int, r *Row) {
	if d.packing {
		d.packed(without(d.drop, d.checked(i)), r)
		return
	}
	first, end := d.span(i)
	d.read(first, end, r)
	r.Docs = nil
}

// span is the tokens [first, end) of row i, which is not packed.
func (d *Dataset) span(i int) (first, end int64) {
	doc, n := d.checked(i), int64(d.spec.MaxSeqLen)
	if d.first == nil {
		first, end = d.c.span(doc)
		return first, min(end, first+n)
	}
	doc = int64(sort.Search(int(d.c.Docs), func(k int) bool { return d.first[k+1] > int64(i) }))
	first, end = d.c.span(doc)
	first += (int64(i) - d.first[doc]) * n
	return first, min(end, first+n)
}

func (d *Dataset) checked(i int) int64 {
	if i < 0 || int64(i) >= d.rows {
		panic(fmt.Sprintf("data: row %d of %d", i, d.rows))
	}
	return int64(i)
}

// packed makes r the tokens [i*MaxSeqLen, (i+1)*MaxSeqLen) of all documents.
func (d *Dataset) packed(i int64, r *Row) {
	n := int64(d.spec.MaxSeqLen)
	first, end := i*n, min((i+1)*n, d.c.Tokens)
	d.read(first, end, r)
	r.Docs = r.Docs[:0]
	doc := sort.Search(int(d.c.Docs), func(k int) bool { e, _ := d.c.doc(int64(k)); return e > first })
	for first < end {
		e, _ := d.c.doc(int64(doc))
		e = min(e, end)
		r.Docs = append(r.Docs, int32(e-first))
		first = e
		doc++
	}
}

func (d *Dataset) read(first, end int64, r *Row) {
	r.IDs = d.c.readIDs(r.IDs[:0], first, end)
	r.Labels = d.c.readLabels(r.Labels[:0], first, end)
}

// Sampler gives Train's rows in the order that the Spec asks for.
func (d *Dataset) Sampler(rowsPerStep int) *Sampler {
	return NewSampler(d.Train(), rowsPerStep, d.spec.Seed, d.spec.Shuffle)
}

// Warnings are what a user should know, one sentence each.
func (d *Dataset) Warnings() []string { return slices.Clone(d.warnings) }

// Cached tells whether the tokens came from a cache made earlier.
func (d *Dataset) Cached() bool { return d.cached }

// Packed tells whether rows are packed.
func (d *Dataset) Packed() bool { return d.packing }

// VocabSize is what all ids are below.
func (d *Dataset) VocabSize() int { return d.spec.VocabSize }

// ID stands for the content: the same files, read with the same tokenizer, have
// the same ID, wherever they lie. Length and order of rows take no part.
func (d *Dataset) ID() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s %s %d %d %08x\n", cacheVersion, d.c.Tokenizer, d.c.Kind, d.c.Tokens, d.c.Docs, d.c.Sums)
	for _, f := range d.c.Files {
		if f.Docs > 0 {
			fmt.Fprintf(h, "%s %d\n", f.SHA256, f.Docs)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Close gives the memory back.
func (d *Dataset) Close() error { return d.c.close() }
