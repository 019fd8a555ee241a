package data

import (
	"fmt"
	"iter"
	"slices"
)

// IgnoreIndex is the label that takes no part in the loss, as in PyTorch.
const IgnoreIndex = -100

// Row is one training sequence. Packed rows hold several documents.
type Row struct {
	IDs []int32 // tokens
	// Labels are aligned with IDs: the token at position t is predicted from the
	// positions before it, so the first label of a document never counts. Nil: the
	// labels are the IDs.
	Labels []int32
	// Docs are the lengths of the documents in the row, in order. Attention does not
	// see from one document to the next, and positions restart. Nil: one document.
	Docs []int32
	// Pairs are the pairs whose documents the row holds, in order; of a data set of pairs
	// all documents are in them. Nil for others.
	Pairs []Pair
}

// Pair says where a pair of answers to one prompt stands in a row or micro-batch. Both answers
// are documents, adjacent ones, that begin with the prompt; their targets are the answers' tokens.
type Pair struct {
	// ID is the pair's number in the data set: the same in every row that has it, in every
	// epoch, order and run over the same data.
	ID int64
	// Chosen and Rejected are the numbers of its documents among those of the row or
	// micro-batch: document i of a micro-batch begins at CuSeqlens[i].
	Chosen, Rejected int32
}

// MicroBatch is the rows that go through a layer in one launch: all documents one after
// the other, without padding.
type MicroBatch struct {
	Tokens int
	IDs    []int32 // (Tokens)
	// Index is where each token's id stands in the batch's UniqueIDs.
	Index []int32 // (Tokens)
	// Targets is the token to predict at each place. Labels are shifted already: the
	// target at place t is the label of t+1. IgnoreIndex where there is none.
	Targets   []int32 // (Tokens)
	Positions []int32 // (Tokens), restarting with every document
	CuSeqlens []int32 // (documents + 1), the first token of each document, then Tokens
	MaxSeqlen int     // the longest document
	// RowStart and RowPos list the places that hold each unique id of the batch: those
	// of id u are RowPos[RowStart[u]:RowStart[u+1]], in rising order.
	RowStart []int32 // (unique ids of the batch + 1)
	RowPos   []int32 // (Tokens)
	// Supervised counts the targets that are not IgnoreIndex.
	Supervised int64
	// Pairs are the pairs of its documents, in order: none is in two micro-batches.
	Pairs []Pair
}

// Same tells whether the documents of a pair have the same tokens and targets.
func (m *MicroBatch) Same(p Pair) bool {
	of := func(list []int32, doc int32) []int32 { return list[m.CuSeqlens[doc]:m.CuSeqlens[doc+1]] }
	return slices.Equal(of(m.IDs, p.Chosen), of(m.IDs, p.Rejected)) && slices.Equal(of(m.Targets, p.Chosen), of(m.Targets, p.Rejected))
}

// Batch is one optimizer step's (or evaluation pass's) global batch, or the part of it that one
// of several ranks takes. What it says of tokens, ids and micro-batches is of that part.
type Batch struct {
	Step         int // 1-based number of the step, or of the evaluation pass
	MicroBatches []MicroBatch
	UniqueIDs    []int32 // all ids of the batch, each once, in rising order
	Tokens       int64
	Supervised   int64 // over all micro-batches; the loss is divided by AllSupervised
	Pairs        int64 // over all micro-batches; AllPairs has those of all ranks
	Chosen       int64 // the targets of the pairs' chosen answers; AllChosen has those of all ranks
	// Ranks is what all ranks have of the step; nil: this batch is all of it.
	Ranks *AllRanks
	// Pos is the data position after this batch: how many rows were consumed since
	// the start of training, over all epochs.
	Pos int64
}

// NewBatch groups rows, in order, into micro-batches of at most maxTokens tokens, or of
// one row that alone has more, and lists the unique ids. It leaves Pos to the caller. It
// does not keep the rows.
func NewBatch(step int, rows []Row, maxTokens int) *Batch {
	b := &Batch{Step: step}
	for len(rows) > 0 {
		n, tokens := 1, len(rows[0].IDs)
		for n < len(rows) && tokens+len(rows[n].IDs) <= maxTokens {
			tokens += len(rows[n].IDs)
			n++
		}
		mb := newMicroBatch(rows[:n], tokens)
		b.Tokens += int64(mb.Tokens)
		b.Supervised += mb.Supervised
		b.Pairs += int64(len(mb.Pairs))
		for _, r := range rows[:n] {
			b.Chosen += r.chosen()
		}
		b.MicroBatches = append(b.MicroBatches, mb)
		rows = rows[n:]
	}
	b.index()
	return b
}

// newMicroBatch puts the documents of rows, which have so many tokens, one after the other.
func newMicroBatch(rows []Row, tokens int) MicroBatch {
	mb := MicroBatch{
		Tokens:    tokens,
		IDs:       make([]int32, 0, tokens),
		Targets:   make([]int32, 0, tokens),
		Positions: make([]int32, 0, tokens),
		CuSeqlens: []int32{0},
	}
	for _, r := range rows {
		first, before := 0, int32(len(mb.CuSeqlens)-1)
		for _, p := range r.Pairs {
			mb.Pairs = append(mb.Pairs, Pair{ID: p.ID, Chosen: before + p.Chosen, Rejected: before + p.Rejected})
		}
		for n := range r.docs() {
			mb.add(r.IDs[first:first+n], r.labels()[first:first+n])
			first += n
		}
		if first != len(r.IDs) {
			panic(fmt.Sprintf("data: a row of %d tokens has documents of %d", len(r.IDs), first))
		}
	}
	return mb
}

// add appends a document; labels are aligned with ids.
func (mb *MicroBatch) add(ids, labels []int32) {
	n := len(ids)
	if n == 0 {
		return
	}
	mb.IDs = append(mb.IDs, ids...)
	mb.Targets = append(append(mb.Targets, labels[1:]...), IgnoreIndex)
	for i := range int32(n) {
		mb.Positions = append(mb.Positions, i)
	}
	mb.CuSeqlens = append(mb.CuSeqlens, int32(len(mb.IDs)))
	mb.MaxSeqlen = max(mb.MaxSeqlen, n)
	mb.Supervised += supervised(labels)
}

// index fills UniqueIDs and, in each micro-batch, Index, RowStart and RowPos.
func (b *Batch) index() {
	largest := int32(-1)
	for _, mb := range b.MicroBatches {
		for _, id := range mb.IDs {
			largest = max(largest, id)
		}
	}
	place := make([]int32, largest+1) // where each id stands in UniqueIDs
	for _, mb := range b.MicroBatches {
		for _, id := range mb.IDs {
			place[id] = 1
		}
	}
	for id, used := range place {
		if used == 1 {
			place[id] = int32(len(b.UniqueIDs))
			b.UniqueIDs = append(b.UniqueIDs, int32(id))
		}
	}
	for i := range b.MicroBatches {
		b.MicroBatches[i].index(place, len(b.UniqueIDs))
	}
}

// index lists the places of each of the batch's unique ids, by a counting sort.
func (mb *MicroBatch) index(place []int32, unique int) {
	mb.Index = make([]int32, mb.Tokens)
	mb.RowStart = make([]int32, unique+1)
	mb.RowPos = make([]int32, mb.Tokens)
	for t, id := range mb.IDs {
		mb.Index[t] = place[id]
		mb.RowStart[place[id]+1]++
	}
	for u := range unique {
		mb.RowStart[u+1] += mb.RowStart[u]
	}
	next := slices.Clone(mb.RowStart)
	for t, u := range mb.Index {
		mb.RowPos[next[u]] = int32(t)
		next[u]++
	}
}

// docs are the lengths of the row's documents.
func (r Row) docs() iter.Seq[int] {
	return func(yield func(int) bool) {
		if r.Docs == nil {
			yield(len(r.IDs))
			return
		}
		for _, n := range r.Docs {
			if !yield(int(n)) {
				return
			}
		}
	}
}

func (r Row) labels() []int32 {
	if r.Labels == nil {
		return r.IDs
	}
	return r.Labels
}

// Supervised counts the tokens of the row that count in the loss.
func (r Row) Supervised() int64 {
	var sum int64
	first, labels := 0, r.labels()
	for n := range r.docs() {
		sum += supervised(labels[first : first+n])
		first += n
	}
	return sum
}

// chosen counts the tokens of the row that count in the loss, in the chosen answers of its pairs.
func (r Row) chosen() (sum int64) {
	doc, first, labels, pairs := int32(0), 0, r.labels(), r.Pairs // which are in the order of their documents
	for n := range r.docs() {
		if len(pairs) > 0 && pairs[0].Chosen == doc {
			sum, pairs = sum+supervised(labels[first:first+n]), pairs[1:]
		}
		doc, first = doc+1, first+n
	}
	return sum
}

// supervised counts the tokens of one document that count in the loss.
func supervised(labels []int32) int64 {
	var n int64
	for i, l := range labels {
		if i > 0 && l != IgnoreIndex {
			n++
		}
	}
	return n
}

// Sampler says which rows make up a step. It keeps no position: all methods depend on the
// step's number alone, so training can resume at any step.
type Sampler struct {
	view    View
	perStep int
	seed    int64
	shuffle bool
	// The first done steps have taken the rows before data position at.
	done int
	at   int64
}

// NewSampler makes a Sampler that gives rowsPerStep rows (at least 1) of view to a step: in
// file order, or with shuffle in an order that follows from seed and the epoch's number.
func NewSampler(view View, rowsPerStep int, seed int64, shuffle bool) *Sampler {
	if rowsPerStep < 1 {
		panic(fmt.Sprintf("data: %d rows a step", rowsPerStep))
	}
	return &Sampler{view: view, perStep: rowsPerStep, seed: seed, shuffle: shuffle}
}

// From is a sampler like s whose first step after step begins at the data position pos,
// whichever rows the steps before took. Where pos is s's own position after step, it gives
// what s gives. Its methods may be called for steps after step, and Pos for step too.
func (s *Sampler) From(step int, pos int64) *Sampler {
	out := *s
	out.done, out.at = step, pos
	return &out
}

// StepAt is the first step after which the position is at least pos.
func (s *Sampler) StepAt(pos int64) int {
	rows, epoch := int64(s.view.Rows()), s.at/int64(s.view.Rows())
	if pos <= s.at {
		return s.done
	}
	last := (pos - 1) / rows // the epoch that pos lies in, or that ends at pos
	steps := func(from, to int64) int { return int((to - from + int64(s.perStep) - 1) / int64(s.perStep)) }
	if last == epoch {
		return s.done + steps(s.at, pos)
	}
	return s.done + steps(s.at, (epoch+1)*rows) + int(last-epoch-1)*s.StepsPerEpoch() + steps(last*rows, pos)
}

// StepsPerEpoch is how many steps take every row once. The last of them may have fewer rows.
func (s *Sampler) StepsPerEpoch() int { return (s.view.Rows() + s.perStep - 1) / s.perStep }

// Step is the rows of step n >= 1. The view must not be empty.
func (s *Sampler) Step(n int) []Row {
	epoch, first, end := s.span(n)
	order := newPermutation(int64(s.view.Rows()), s.seed, uint64(epoch))
	rows := make([]Row, end-first)
	for i := range rows {
		at := first + i
		if s.shuffle {
			at = int(order.at(int64(at)))
		}
		rows[i] = s.view.Row(at)
	}
	return rows
}

// Pos is the data position after step n: how many rows steps 1 to n have taken, over all
// epochs; 0 for n = 0.
func (s *Sampler) Pos(n int) int64 {
	if n == s.done {
		return s.at
	}
	epoch, _, end := s.span(n)
	return int64(epoch)*int64(s.view.Rows()) + int64(end)
}

// Batch is step n in micro-batches, as NewBatch makes them, with its data position. The
// error is that of Dataset.Read.
func (s *Sampler) Batch(n, maxTokens int) (*Batch, error) { return s.RankBatch(n, maxTokens, 0, 1) }

// RankBatch is the part of step n that one of several ranks takes, as NewRankBatch makes it.
// Its data position is that after the whole step. The error is that of Dataset.Read.
func (s *Sampler) RankBatch(n, maxTokens, rank, ranks int) (*Batch, error) {
	var rows []Row
	if err := s.view.d.Read(func() { rows = s.Step(n) }); err != nil {
		return nil, err
	}
	b := NewRankBatch(n, rows, maxTokens, rank, ranks)
	b.Pos = s.Pos(n)
	return b, nil
}

// span is the epoch (from 0) that step n is in, and the range of the rows that it takes, in
// that epoch's order. The last step of an epoch takes what is left of it, which may be fewer
// rows, so that no step has rows of two epochs.
func (s *Sampler) span(n int) (epoch, first, end int) {
	rows, steps := s.view.Rows(), s.StepsPerEpoch()
	if n <= s.done || steps == 0 {
		panic(fmt.Sprintf("data: step %d of %d an epoch, after step %d", n, steps, s.done))
	}
	epoch, first = int(s.at/int64(rows)), int(s.at%int64(rows))
	n -= s.done + 1
	if left := (rows - first + s.perStep - 1) / s.perStep; n < left {
		first += n * s.perStep
	} else {
		n -= left
		epoch, first = epoch+1+n/steps, n%steps*s.perStep
	}
	return epoch, first, min(first+s.perStep, rows)
}

// AllRanks is what the ranks that train together have of one step between them.
type AllRanks struct {
	// StandIn: no row is left for this rank, and its batch is one that nothing may be learnt from.
	StandIn    bool
	Tokens     int64 // of the global batch
	Supervised int64 // of the global batch; the loss is divided by it
	Pairs      int64 // of the global batch
	Chosen     int64 // of the global batch: the targets of the pairs' chosen answers
	// Docs are the lengths of the documents of the global batch, in tokens.
	Docs  []int32
	First int // how many tokens of the global batch are in front of this rank's
	// IDs are the UniqueIDs of each rank's batch, by rank.
	IDs [][]int32
}

// AllTokens is how many tokens the global batch has: those of all ranks.
func (b *Batch) AllTokens() int64 {
	if b.Ranks == nil {
		return b.Tokens
	}
	return b.Ranks.Tokens
}

// AllSupervised is how many targets of the global batch are not IgnoreIndex.
func (b *Batch) AllSupervised() int64 {
	if b.Ranks == nil {
		return b.Supervised
	}
	return b.Ranks.Supervised
}

// FirstToken is the place in the step of the batch's first token: how many tokens of the global batch are in front of it.
func (b *Batch) FirstToken() int {
	if b.Ranks == nil {
		return 0
	}
	return b.Ranks.First
}

// AllPairs is how many pairs the global batch has.
func (b *Batch) AllPairs() int64 {
	if b.Ranks == nil {
		return b.Pairs
	}
	return b.Ranks.Pairs
}

// AllChosen is how many targets the chosen answers of the global batch's pairs have.
func (b *Batch) AllChosen() int64 {
	if b.Ranks == nil {
		return b.Chosen
	}
	return b.Ranks.Chosen
}

// AllDocs are the lengths of the documents of the global batch, in tokens.
func (b *Batch) AllDocs() []int32 {
	if b.Ranks != nil {
		return b.Ranks.Docs
	}
	var docs []int32
	for _, m := range b.MicroBatches {
		for i, first := range m.CuSeqlens[:len(m.CuSeqlens)-1] {
			docs = append(docs, m.CuSeqlens[i+1]-first)
		}
	}
	return docs
}

// NewRankBatch makes the batch of one of several ranks out of the rows of the global batch:
// rank r of n takes the rows from r·len(rows)/n to (r+1)·len(rows)/n, in micro-batches as
// NewBatch makes them. A rank for which no row is left takes the first row of all, without
// labels and pairs: it computes as the others do, and its gradients are zero.
func NewRankBatch(step int, rows []Row, maxTokens, rank, ranks int) *Batch {
	b := NewBatch(step, rankRows(rows, rank, ranks), maxTokens)
	if ranks <= 1 {
		return b
	}
	all := &AllRanks{IDs: make([][]int32, ranks)}
	largest := int32(-1)
	for i, r := range rows {
		all.Tokens += int64(len(r.IDs))
		if i < rank*len(rows)/ranks {
			all.First += len(r.IDs)
		}
		all.Supervised += r.Supervised()
		all.Pairs += int64(len(r.Pairs))
		all.Chosen += r.chosen()
		for n := range r.docs() {
			if n > 0 {
				all.Docs = append(all.Docs, int32(n))
			}
		}
		for _, id := range r.IDs {
			largest = max(largest, id)
		}
	}
	used := make([]bool, largest+1)
	for r := range all.IDs {
		all.IDs[r] = uniqueIDs(rankRows(rows, r, ranks), used)
	}
	all.StandIn = len(ownRows(rows, rank, ranks)) == 0
	b.Ranks = all
	return b
}

// rankRows are the rows of the global batch that a rank takes.
func rankRows(rows []Row, rank, ranks int) []Row {
	if ranks <= 1 {
		return rows
	}
	own := ownRows(rows, rank, ranks)
	if len(own) > 0 || len(rows) == 0 {
		return own
	}
	unlabelled := rows[0]
	unlabelled.Pairs = nil
	unlabelled.Labels = slices.Repeat([]int32{IgnoreIndex}, len(unlabelled.IDs))
	return []Row{unlabelled}
}

// ownRows are those of them that are not another rank's; there may be none.
func ownRows(rows []Row, rank, ranks int) []Row {
	return rows[rank*len(rows)/ranks : (rank+1)*len(rows)/ranks]
}

// uniqueIDs lists the ids of rows, each once, in rising order. used has a place for every id,
// all false, and is so again afterwards.
func uniqueIDs(rows []Row, used []bool) []int32 {
	var out []int32
	for _, r := range rows {
		for _, id := range r.IDs {
			if !used[id] {
				used[id] = true
				out = append(out, id)
			}
		}
	}
	for _, id := range out {
		used[id] = false
	}
	slices.Sort(out)
	return out
}
