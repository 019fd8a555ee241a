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
