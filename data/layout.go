package data

import (
	"errors"
	"fmt"
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
	case d.c.Kind == kindChat:
		err = d.chats()
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

// pack counts packed rows and drops those without a supervised token.
func (d *Dataset) pack() {
	n := int64(d.spec.MaxSeqLen)
	total := (d.mix.tokens + n - 1) / n
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
	n := int64(d.spec.MaxSeqLen)
	if !d.anyLonger() {
		return
	}
	d.first = make([]int64, d.mix.n+1)
	for p := range d.mix.n {
		first, end := d.c.span(d.mix.doc(p))
		pieces := (end - first + n - 1) / n
		if (end-first)%n == 1 {
			pieces-- // a single token at the end predicts nothing
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

// truncate makes each document of ready ids a row and cuts long ones.
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

// cutAll counts the documents that are longer than MaxSeqLen and drops those
// with nothing supervised before the cut. It returns what is left, nil for all
// in their order.
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

// example appends where doc is, while there are few.
func (d *Dataset) example(to []string, doc int64) []string {
	if len(to) < ReportExamples {
		to = append(to, d.c.where(doc))
	}
	return to
}

// chats makes rows of whole chats: each is one, or several are packed so that
// little room is left.
func (d *Dataset) chats() error {
	kept, err := d.cutAll()
	if err != nil {
		return err
	}
	if d.packing {
		if kept == nil {
			kept = d.mix.upTo(d.mix.n)
		}
		d.fit, d.fitAt = d.bestFit(kept)
		d.rows = int64(len(d.fitAt) - 1)
		return nil
	}
	if kept != nil {
		d.fit, d.rows = kept, int64(len(kept))
	}
	return nil
}

// Row is row i in file order. The slices are the caller's.
func (d *Dataset) Row(i int) Row {
	var r Row
	d.fill(i, &r)
	return r
}

// fill makes r row i; it uses r's slices where they suffice.
func (d *Dataset) fill(i int, r *Row) {
	switch {
	case d.fitAt != nil:
		d.checked(i)
		r.IDs, r.Labels, r.Docs = r.IDs[:0], r.Labels[:0], r.Docs[:0]
		for _, doc := range d.fit[d.fitAt[i]:d.fitAt[i+1]] {
			d.append(r, doc, 0, int64(d.spec.MaxSeqLen))
		}
	case d.packing:
		d.packed(without(d.drop, d.checked(i)), r)
	default:
		first, end := d.span(i)
		r.IDs = d.c.readIDs(r.IDs[:0], first, end)
		r.Labels = d.c.readLabels(r.Labels[:0], first, end)
		r.Docs = nil
	}
}

// append appends tokens [from, to) of a document to a packed row.
func (d *Dataset) append(r *Row, doc, from, to int64) {
	first, end := d.c.span(doc)
	first, end = first+from, min(end, first+to)
	r.IDs = d.c.readIDs(r.IDs, first, end)
	r.Labels = d.c.readLabels(r.Labels, first, end)
	r.Docs = append(r.Docs, int32(end-first))
}

// span is the tokens [first, end) of row i, which is not packed.
func (d *Dataset) span(i int) (first, end int64) {
	p, n := d.checked(i), int64(d.spec.MaxSeqLen)
	switch {
	case d.fit != nil:
		first, end = d.c.span(d.fit[p])
	case d.first == nil:
		first, end = d.c.span(d.mix.doc(p))
	default:
		p = int64(sort.Search(int(d.mix.n), func(k int) bool { return d.first[k+1] > int64(i) }))
		first, end = d.c.span(d.mix.doc(p))
		first += (int64(i) - d.first[p]) * n
	}
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
	r.IDs, r.Labels, r.Docs = r.IDs[:0], r.Labels[:0], r.Docs[:0]
	for doc, piece := range d.pieces(i) {
		d.append(r, doc, piece.from, piece.to)
	}
}

// tokens is the number of row i's tokens.
func (d *Dataset) tokens(i int) int64 {
	switch {
	case d.fitAt != nil:
		sum := int64(0)
		for _, doc := range d.fit[d.fitAt[i]:d.fitAt[i+1]] {
			first, end := d.c.span(doc)
			sum += min(end-first, int64(d.spec.MaxSeqLen))
		}
		return sum
	case d.packing:
		n := int64(d.spec.MaxSeqLen)
		at := without(d.drop, d.checked(i)) * n
		return min(n, d.mix.tokens-at)
	}
	first, end := d.span(i)
	return end - first
}

// fitWindow is how many chats are packed at a time: more leaves less room, and
// strays further from the order of the files.
const fitWindow = 8192

// bestFit packs documents, cut to MaxSeqLen, into rows: window by window, the
// longest first, each into the row with the least room that takes it. Rows are in
// the order of their first documents, and documents in their own.
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
