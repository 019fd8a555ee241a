package data

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
)

// arrange says in which order documents come, which of their tokens make up each
// row, and which rows are Eval's.
func (d *Dataset) arrange() (err error) {
	if d.mix, err = d.newMix(); err != nil {
		return err
	}
	d.packing = d.c.Kind != kindIDs
	if p := d.spec.Packing; p != nil {
		d.packing = *p
	}
	d.rows = d.mix.n
	switch {
	case d.c.Kind == kindChat && d.packing:
		err = d.packChats()
	case d.packing:
		d.mix.sum(d.c)
		d.pack()
	case d.c.Kind == kindText:
		d.cut()
	default:
		err = d.truncate()
	}
	if err != nil {
		return err
	}
	if d.rows == 0 {
		return errors.New("no row has a token to predict; give more data")
	}
	return d.split()
}

// pack counts the packed rows and drops those without a supervised token.
func (d *Dataset) pack() {
	n := int64(d.spec.MaxSeqLen)
	total := (d.mix.tokens + n - 1) / n
	// A document has at least two tokens and, without labels, all but its first are
	// supervised. So among three tokens in a row one is always supervised, and only
	// the last row, which may be shorter, has to be looked at.
	from := int64(0)
	if !d.c.HasLabels && n > 2 {
		from = total - 1
	}
	var r Row
	for i := from; i < total; i++ {
		d.assemble(d.packed(i), &r)
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
	n := int64(d.spec.MaxSeqLen)
	if !d.anyLonger() {
		return
	}
	d.first = make([]int64, d.mix.n+1)
	for p := range d.mix.n {
		first, end := d.c.span(d.mix.doc(p))
		pieces := (end - first + n - 1) / n
		if (end-first)%n == 1 {
			pieces-- // a last piece of one token has nothing to predict
		}
		d.first[p+1] = d.first[p] + pieces
	}
	d.rows = d.first[d.mix.n]
}

func (d *Dataset) anyLonger() bool {
	for i := range d.c.Docs {
		if first, end := d.c.span(i); end-first > int64(d.spec.MaxSeqLen) {
			return true
		}
	}
	return false
}

// truncate makes each document a row and cuts long ones.
func (d *Dataset) truncate() error {
	kept, err := d.cutAll()
	if err != nil {
		return err
	}
	if kept != nil {
		d.fit, d.rows = kept, int64(len(kept))
	}
	return nil
}

// cutAll counts the documents that are longer than MaxSeqLen, and drops those that have
// nothing supervised before the cut. It returns the documents that are left; nil stands for
// all of them, in file order.
func (d *Dataset) cutAll() (kept []int64, err error) {
	n := int64(d.spec.MaxSeqLen)
	var labels []int32
	for p := range d.mix.n {
		doc := d.mix.doc(p)
		first, end := d.c.span(doc)
		if end-first > n {
			labels = d.c.readLabels(labels[:0], first, first+n)
			if labels != nil && supervised(labels) == 0 {
				if d.c.Kind == kindIDs && !d.spec.SkipBadRows {
					return nil, fmt.Errorf("%s: the row has %d tokens, and none of the first %d (max_seq_len) is supervised; raise max_seq_len or remove the row", d.c.where(doc), end-first, n)
				}
				if kept == nil {
					kept = d.mix.upTo(p)
				}
				d.dropped, d.cutTokens = d.dropped+1, d.cutTokens+end-first
				d.dropAt = d.example(d.dropAt, doc)
				continue
			}
			d.truncated, d.cutTokens = d.truncated+1, d.cutTokens+end-first-n
			d.cutAt = d.example(d.cutAt, doc)
		}
		if kept != nil {
			kept = append(kept, doc)
		}
	}
	if d.truncated > 0 {
		d.warnf("cut %d of %d rows to %d tokens (max_seq_len)", d.truncated, d.mix.n, n)
	}
	if d.dropped > 0 {
		d.warnf("left out %d of %d rows: none of their first %d tokens (max_seq_len) is supervised", d.dropped, d.mix.n, n)
	}
	if kept == nil && d.mix.seq != nil {
		kept = d.mix.seq
	}
	return kept, nil
}

// example appends where doc is, for a message, unless there are enough examples already.
func (d *Dataset) example(to []string, doc int64) []string {
	if len(to) < ReportExamples {
		to = append(to, d.c.where(doc))
	}
	return to
}

// packChats makes rows of several whole chats each, such that little room is left in them.
func (d *Dataset) packChats() error {
	kept, err := d.cutAll()
	if err != nil {
		return err
	}
	if kept == nil {
		kept = d.mix.upTo(d.mix.n)
	}
	d.fit, d.fitAt = d.bestFit(kept)
	d.rows = int64(len(d.fitAt) - 1)
	return nil
}

// Row is row i in file order. The slices are the caller's.
func (d *Dataset) Row(i int) Row {
	var r Row
	d.fill(i, &r)
	return r
}

// fill makes r row i. It reuses r's slices where they are large enough.
func (d *Dataset) fill(i int, r *Row) {
	d.assemble(d.pieces(i), r)
	if !d.packing {
		r.Docs = nil
	}
}

// assemble makes r of ranges of documents, one after the other.
func (d *Dataset) assemble(pieces iter.Seq2[int64, stretch], r *Row) {
	r.IDs, r.Labels, r.Docs = r.IDs[:0], r.Labels[:0], r.Docs[:0]
	for doc, piece := range pieces {
		first, _ := d.c.span(doc)
		r.IDs = d.c.readIDs(r.IDs, first+piece.from, first+piece.to)
		r.Labels = d.c.readLabels(r.Labels, first+piece.from, first+piece.to)
		r.Docs = append(r.Docs, int32(piece.to-piece.from))
	}
}

// pieces are the documents of row i, each with the range of its tokens that the row holds.
func (d *Dataset) pieces(i int) iter.Seq2[int64, stretch] {
	row := d.checked(i)
	switch {
	case d.fitAt != nil:
		return func(yield func(int64, stretch) bool) {
			for _, doc := range d.fit[d.fitAt[row]:d.fitAt[row+1]] {
				if !yield(doc, d.part(doc, 0)) {
					return
				}
			}
		}
	case d.packing:
		return d.packed(without(d.drop, row))
	}
	return func(yield func(int64, stretch) bool) { yield(d.single(row)) }
}

// single is the document of row i, where rows are not packed, and the range of its tokens in the row.
func (d *Dataset) single(i int64) (doc int64, piece stretch) {
	switch {
	case d.fit != nil:
		return d.fit[i], d.part(d.fit[i], 0)
	case d.first == nil:
		doc = d.mix.doc(i)
		return doc, d.part(doc, 0)
	}
	p := int64(sort.Search(int(d.mix.n), func(k int) bool { return d.first[k+1] > i }))
	doc = d.mix.doc(p)
	return doc, d.part(doc, (i-d.first[p])*int64(d.spec.MaxSeqLen))
}

// part is the range of a document's tokens, beginning with token from, that fits into one row.
func (d *Dataset) part(doc, from int64) stretch {
	first, end := d.c.span(doc)
	return stretch{from, min(end-first, from+int64(d.spec.MaxSeqLen))}
}

func (d *Dataset) checked(i int) int64 {
	if i < 0 || int64(i) >= d.rows {
		panic(fmt.Sprintf("data: row %d of %d", i, d.rows))
	}
	return int64(i)
}

// tokens is how many tokens row i has.
func (d *Dataset) tokens(i int) (sum int64) {
	for _, piece := range d.pieces(i) {
		sum += piece.to - piece.from
	}
	return sum
}

// fitWindow is how many chats are packed at a time. A larger window leaves less room in the
// rows, and takes chats further from their order in the files.
const fitWindow = 8192

// bestFit packs documents, cut to MaxSeqLen, into rows. In each window of documents it takes
// the longest first and puts each into the row with the least room that it fits in. Rows are
// in the order of their first documents, and the documents of a row in file order.
func (d *Dataset) bestFit(docs []int64) (fit, at []int64) {
	at = []int64{0}
	most := int64(d.spec.MaxSeqLen)
	for window := range slices.Chunk(docs, fitWindow) {
		lengths := make([]int64, len(window))
		for i, doc := range window {
			first, end := d.c.span(doc)
			lengths[i] = min(end-first, most)
		}
		for _, bin := range bestFit(lengths, most) {
			for _, i := range bin {
				fit = append(fit, window[i])
			}
			at = append(at, int64(len(fit)))
		}
	}
	return fit, at
}
