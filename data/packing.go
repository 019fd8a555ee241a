package data

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sort"
)

// arrange decides the order of the documents, the tokens that each row holds, and which rows belong to Eval.
func (d *Dataset) arrange() (err error) {
	if d.mix, err = d.newMix(); err != nil {
		return err
	}
	d.packing = d.c.Kind != kindIDs && d.c.Kind != kindPairs
	if p := d.spec.Packing; p != nil {
		d.packing = *p
	}
	d.rows = d.mix.n
	switch {
	case (d.c.Kind == kindChat || d.c.Kind == kindPairs) && d.packing:
		err = d.packWhole()
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
		return d.noRows()
	}
	return d.split()
}

// noRows returns the error of a data set without any row.
func (d *Dataset) noRows() error {
	if d.dropped == 0 {
		return errors.New("no row has a token to predict; give more data")
	}
	what := fmt.Sprintf("none of the first %d tokens is supervised", d.spec.MaxSeqLen)
	if d.IsPairs() {
		what = fmt.Sprintf("the prompt alone has %d tokens or more", d.spec.MaxSeqLen)
	}
	return &SpecError{"max_seq_len", fmt.Errorf("no row has a token to predict: max_seq_len is %d, and in all %d rows %s (the first: %s); raise max_seq_len, or give shorter rows", d.spec.MaxSeqLen, d.dropped, what, d.dropAt[0])}
}

// mix is the order in which documents are put into rows: all documents in file order, or a selection in any order,
// perhaps with repetitions. A position counts the documents of the mix.
type mix struct {
	n      int64
	seq    []int64 // the documents; nil: all, in file order
	ends   []int64 // total tokens up to the end of each document in seq; set by sum
	tokens int64   // total tokens of all documents; set by sum
	id     [32]byte
	cache  *cache
}

// doc returns the number, in file order, of the document at position p of the mix.
func (m *mix) doc(p int64) int64 {
	if m.seq == nil {
		return p
	}
	return m.seq[p]
}

// upTo returns a new slice with the documents at positions 0 to p-1 of the mix.
func (m *mix) upTo(p int64) []int64 {
	if m.seq != nil {
		return slices.Clone(m.seq[:p])
	}
	out := make([]int64, p)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

// sum computes tokens and ends from the documents' lengths in the cache. It must be called before
// end.
func (m *mix) sum(c *cache) {
	m.cache, m.tokens = c, c.Tokens
	if m.seq == nil {
		return
	}
	m.tokens, m.ends = 0, make([]int64, m.n)
	for p, doc := range m.seq {
		first, end := c.span(doc)
		m.tokens += end - first
		m.ends[p] = m.tokens
	}
}

// end returns the total number of tokens of the documents at positions 0 to p, the document at p included.
func (m *mix) end(p int64) int64 {
	if m.ends == nil {
		return m.cache.end(p)
	}
	return m.ends[p]
}

// pack divides the mix, read as one sequence of tokens, into rows of MaxSeqLen tokens. It counts the rows and drops
// those without a supervised token.
func (d *Dataset) pack() {
	n := int64(d.spec.MaxSeqLen)
	total := (d.mix.tokens + n - 1) / n
	// A document has at least two tokens. Without labels, all its tokens but the first are supervised. So any three
	// consecutive tokens contain a supervised one, and only the last row, which may be shorter, needs a check.
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

// cut computes how many rows each document takes, if documents longer than MaxSeqLen are cut into several rows.
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

// truncate makes each document a row. Tokens beyond MaxSeqLen are left out.
func (d *Dataset) truncate() error {
	kept, err := d.cutAll()
	if err != nil {
		return err
	}
	if kept == nil && d.c.SameRow > 0 {
		kept = d.mix.upTo(d.mix.n)
	}
	switch {
	case kept == nil:
	case d.c.SameRow > 0:
		d.fit, d.fitAt = d.together(kept)
		d.rows = int64(len(d.fitAt) - 1)
	default:
		d.fit, d.rows = kept, int64(len(kept))
	}
	return nil
}

// together puts documents that came from one input row into one row. If they exceed MaxSeqLen, the next document
// begins another row. The results are for Dataset.fit and fitAt, which describe them.
func (d *Dataset) together(docs []int64) (fit, at []int64) {
	at = []int64{0}
	tokens := int64(0)
	for i, doc := range docs {
		n := d.length(doc)
		_, flags := d.c.line(doc)
		if i > 0 && (flags&flagSameRow == 0 || docs[i-1] != doc-1 || tokens+n > int64(d.spec.MaxSeqLen)) {
			at, tokens = append(at, int64(i)), 0
		}
		tokens += n
	}
	return docs, append(at, int64(len(docs)))
}

// cutAll counts the documents and pairs longer than MaxSeqLen. It drops a document if nothing before the cut is
// supervised, and a pair if the same holds for one of its two documents. It returns the documents that stay, in the
// order of the mix; nil: all, in file order.
func (d *Dataset) cutAll() (kept []int64, err error) {
	n := int64(d.spec.MaxSeqLen)
	for p := range d.mix.n {
		doc := d.mix.doc(p)
		first, end := d.c.span(doc)
		if cut := end - first - d.length(doc); cut > 0 {
			if !d.teaches(doc) {
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
			d.truncated, d.cutTokens = d.truncated+1, d.cutTokens+cut
			d.cutAt = d.example(d.cutAt, doc)
		}
		if kept != nil {
			kept = append(kept, doc)
		}
	}
	if d.truncated > 0 && d.IsPairs() {
		d.warnf("cut an answer in %d of %d pairs, so that it and the prompt have %d tokens (max_seq_len)", d.truncated, d.mix.n, n)
	} else if d.truncated > 0 {
		d.warnf("cut %d of %d rows to %d tokens (max_seq_len)", d.truncated, d.mix.n, n)
	}
	if d.dropped > 0 && d.IsPairs() {
		d.warnf("left out %d of %d pairs: their prompt alone has %d tokens (max_seq_len) or more", d.dropped, d.mix.n, n)
	} else if d.dropped > 0 {
		d.warnf("left out %d of %d rows: none of their first %d tokens (max_seq_len) is supervised", d.dropped, d.mix.n, n)
	}
	if kept == nil && d.mix.seq != nil {
		kept = d.mix.seq
	}
	return kept, nil
}

// teaches reports whether the document doc has a supervised token within the first MaxSeqLen tokens. For a pair, both
// of its documents must have one.
func (d *Dataset) teaches(doc int64) bool {
	first, _ := d.c.span(doc)
	for _, part := range d.parts(doc) {
		labels := d.c.readLabels(nil, first+part.from, first+part.to)
		if labels != nil && supervised(labels) == 0 {
			return false
		}
	}
	return true
}

// length returns the number of tokens that a document or pair takes in a row, after truncation.
func (d *Dataset) length(doc int64) (sum int64) {
	for _, part := range d.parts(doc) {
		sum += part.to - part.from
	}
	return sum
}

// example appends the location of document doc to the list `to`, unless the list has ReportExamples entries already.
func (d *Dataset) example(to []string, doc int64) []string {
	if len(to) < ReportExamples {
		to = append(to, d.c.where(doc))
	}
	return to
}

// packWhole packs whole chats or pairs into rows with little space left, by best fit. Documents longer than MaxSeqLen
// are truncated first.
func (d *Dataset) packWhole() error {
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

// Row returns row i in file order. The caller owns the slices.
func (d *Dataset) Row(i int) Row {
	var r Row
	d.fill(i, &r)
	return r
}

// fill sets r to row i and reuses the memory of r's slices.
func (d *Dataset) fill(i int, r *Row) {
	d.assemble(d.pieces(i), r)
	if !d.packing && !d.IsPairs() && d.fitAt == nil {
		r.Docs = nil
	}
}

// assemble sets r to the concatenation of pieces. Each piece is a document's number and a range of its tokens.
func (d *Dataset) assemble(pieces iter.Seq2[int64, tokenRange], r *Row) {
	r.IDs, r.Labels, r.Docs, r.Pairs = r.IDs[:0], r.Labels[:0], r.Docs[:0], r.Pairs[:0]
	for doc, piece := range pieces {
		first, _ := d.c.span(doc)
		r.IDs = d.c.readIDs(r.IDs, first+piece.from, first+piece.to)
		r.Labels = d.c.readLabels(r.Labels, first+piece.from, first+piece.to)
		r.Docs = append(r.Docs, int32(piece.to-piece.from))
		if n := int32(len(r.Docs)); d.IsPairs() && n%2 == 0 {
			r.Pairs = append(r.Pairs, Pair{ID: doc, Chosen: n - 2, Rejected: n - 1})
		}
	}
}

// pieces yields each document of row i with the range of its tokens that the row holds. A pair comes twice: first
// with the range of its chosen document, then with the range of the rejected one.
func (d *Dataset) pieces(i int) iter.Seq2[int64, tokenRange] {
	row := d.checked(i)
	switch {
	case d.fitAt != nil:
		return func(yield func(int64, tokenRange) bool) {
			for _, doc := range d.fit[d.fitAt[row]:d.fitAt[row+1]] {
				for _, part := range d.parts(doc) {
					if !yield(doc, part) {
						return
					}
				}
			}
		}
	case d.packing:
		return d.packed(without(d.drop, row))
	}
	return func(yield func(int64, tokenRange) bool) {
		doc, part := d.single(row)
		if !d.IsPairs() {
			yield(doc, part)
			return
		}
		for _, part := range d.parts(doc) {
			if !yield(doc, part) {
				return
			}
		}
	}
}

// tokenRange is the range [from, to) of a document's tokens.
type tokenRange struct{ from, to int64 }

// packed yields the documents in packed row i, each with the range of its tokens in the row. The row holds tokens
// [i*MaxSeqLen, (i+1)*MaxSeqLen) of the mix.
func (d *Dataset) packed(i int64) iter.Seq2[int64, tokenRange] {
	n := int64(d.spec.MaxSeqLen)
	at, end := i*n, min((i+1)*n, d.mix.tokens)
	p := int64(sort.Search(int(d.mix.n), func(k int) bool { return d.mix.end(int64(k)) > at }))
	return func(yield func(int64, tokenRange) bool) {
		for ; at < end; p++ {
			doc := d.mix.doc(p)
			first, last := d.c.span(doc)
			start := d.mix.end(p) - (last - first)
			to := min(end, d.mix.end(p))
			if !yield(doc, tokenRange{at - start, to - start}) {
				return
			}
			at = to
		}
	}
}

// single returns the document in the unpacked row i, and the range of its tokens that the row holds.
func (d *Dataset) single(i int64) (doc int64, piece tokenRange) {
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

// part returns the range of a document's tokens that a row holds if the row begins at token number
// from. It ends at the document's end or after MaxSeqLen tokens.
func (d *Dataset) part(doc, from int64) tokenRange {
	first, end := d.c.span(doc)
	return tokenRange{from, min(end-first, from+int64(d.spec.MaxSeqLen))}
}

// parts returns the ranges of a document's tokens that a row of whole documents holds. It is one range from the
// document's start. For a pair there are two: one from the start of the chosen and one from the start of the rejected
// document.
func (d *Dataset) parts(doc int64) []tokenRange {
	if !d.IsPairs() {
		return []tokenRange{d.part(doc, 0)}
	}
	first, end := d.c.span(doc)
	most, cut := int64(d.spec.MaxSeqLen), d.c.chosen(doc)
	return []tokenRange{{0, min(cut, most)}, {cut, min(end-first, cut+most)}}
}

func (d *Dataset) checked(i int) int64 {
	if i < 0 || int64(i) >= d.rows {
		panic(fmt.Sprintf("data: row %d of %d", i, d.rows))
	}
	return int64(i)
}

// tokens returns the number of tokens in row i.
func (d *Dataset) tokens(i int) (sum int64) {
	for _, piece := range d.pieces(i) {
		sum += piece.to - piece.from
	}
	return sum
}

// longestRow returns the largest number of tokens that a row can have.
func (d *Dataset) longestRow() int64 {
	return int64(RowTokens(d.spec.MaxSeqLen, d.IsPairs()))
}

// RowTokens returns the largest number of tokens that a row can have: maxSeqLen or, for pairs, twice as many, since a
// row of pairs has room for two documents.
func RowTokens(maxSeqLen int, pairs bool) int {
	if pairs {
		return 2 * maxSeqLen
	}
	return maxSeqLen
}

// fitWindow is the number of chats among which best fit looks for rows. A larger window fills rows better but moves
// chats further away from file order.
const fitWindow = 8192

// bestFit packs documents or pairs, truncated to MaxSeqLen, into rows, one window (fitWindow documents) at a time.
// Rows are sorted by their first document; documents within a row are in file order. The results are for Dataset.fit
// and fitAt, which describe them.
func (d *Dataset) bestFit(docs []int64) (fit, at []int64) {
	at = []int64{0}
	most := d.longestRow()
	for window := range slices.Chunk(docs, fitWindow) {
		lengths := make([]int64, len(window))
		for i, doc := range window {
			lengths[i] = d.length(doc)
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

// binSpace is a bin of bestFit (a row) that is not full, with its free space in tokens.
type binSpace struct {
	free int64
	bin  int
}

// bestFit packs items of the given lengths, none above most, into bins of size most. It takes the longest item first
// and puts each into the fullest bin with enough room. It returns the items of each bin in rising order; the bins are
// sorted by first item. Source: best-fit decreasing, as in arXiv:2404.10830.
func bestFit(lengths []int64, most int64) [][]int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lengths[b], lengths[a]) })
	var bins [][]int
	var open []binSpace // sorted by free space, the smallest first
	before := func(a, b binSpace) int { return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.bin, b.bin)) }
	for _, i := range order {
		r := binSpace{most, len(bins)}
		if k, _ := slices.BinarySearchFunc(open, binSpace{lengths[i], -1}, before); k < len(open) {
			r = open[k]
			open = slices.Delete(open, k, k+1)
		} else {
			bins = append(bins, nil)
		}
		bins[r.bin] = append(bins[r.bin], i)
		if r.free -= lengths[i]; r.free > 0 {
			k, _ := slices.BinarySearchFunc(open, r, before)
			open = slices.Insert(open, k, r)
		}
	}
	for _, b := range bins {
		slices.Sort(b)
	}
	slices.SortFunc(bins, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return bins
}

const feistelRounds = 8

// permutation is a bijection of [0, n) with constant memory and constant expected time per index. It is a Feistel
// network over a power of four that is at least n, repeated until the result is below n (cycle walking: Black and
// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
type permutation struct {
	n    uint64
	half int // bits of each half of the network's domain
	keys [feistelRounds]uint64
}

// newPermutation returns a permutation of [0, n) that depends on seed and stream. Different streams give independent
// permutations.
func newPermutation(n int64, seed int64, stream uint64) permutation {
	p := permutation{n: uint64(n), half: 1}
	if n > 1 {
		p.half = max(1, (bits.Len64(p.n-1)+1)/2)
	}
	state := scramble(scramble(uint64(seed)) ^ stream)
	for i := range p.keys {
		state = scramble(state)
		p.keys[i] = state
	}
	return p
}

// at returns the position to which the permutation maps i, for 0 <= i < n.
func (p permutation) at(i int64) int64 {
	x := uint64(i)
	for {
		if x = p.encrypt(x); x < p.n {
			return int64(x)
		}
	}
}

func (p permutation) encrypt(x uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	l, r := x>>p.half, x&mask
	for _, k := range p.keys {
		l, r = r, l^scramble(r^k)&mask
	}
	return l<<p.half | r
}

// scramble maps x to a number that looks random: one step of SplitMix64. Source: Steele, Lea, Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
