package data

import (
	"fmt"
	"iter"
	"slices"
)

// IgnoreIndex is the label of tokens outside the loss, as in PyTorch.
const IgnoreIndex = -100

// Row is one training sequence. Packed rows hold several documents.
type Row struct {
	IDs []int32 // token ids
	// Labels are aligned with IDs. The token at position t is predicted from earlier positions, so a document's
	// first label never counts. nil: the labels are the IDs.
	Labels []int32
	// Docs are the lengths of the row's documents in order. Attention does not cross documents, and positions
	// restart in each. nil: one document.
	Docs []int32
	// Pairs are the row's pairs in order. In a data set of pairs, every document belongs to a pair. nil for other
	// data.
	Pairs []Pair
}

// Pair locates a pair of answers to one prompt in a row or micro-batch. The two answers are adjacent documents that
// begin with the prompt. Their targets are the tokens of the answers.
type Pair struct {
	// ID is the pair's number in the data set. It is the same in every row, epoch, order and run over the same
	// data.
	ID int64
	// Chosen and Rejected are indices of documents in the row or micro-batch. Document i of a micro-batch begins at
	// CuSeqlens[i].
	Chosen, Rejected int32
}

// MicroBatch is the rows that one launch passes through a layer: all documents concatenated, without padding.
type MicroBatch struct {
	Tokens int
	IDs    []int32 // (Tokens)
	// Index is, for each token, the position of its id in the batch's UniqueIDs.
	Index []int32 // (Tokens)
	// Targets is the token to predict at each position: labels shifted by one, so the target at t is the label of
	// t+1. IgnoreIndex: none.
	Targets   []int32 // (Tokens)
	Positions []int32 // (Tokens), restarts with every document
	CuSeqlens []int32 // (documents + 1), first token of each document, then Tokens
	MaxSeqlen int     // tokens of the longest document
	// RowStart and RowPos list the positions of each unique id of the batch. The id UniqueIDs[u] stands at the
	// positions RowPos[RowStart[u]:RowStart[u+1]], in rising order.
	RowStart []int32 // (unique ids of the batch + 1)
	RowPos   []int32 // (Tokens)
	// Supervised counts the targets that are not IgnoreIndex.
	Supervised int64
	// SupervisedAhead counts the targets of AheadTargets that are not IgnoreIndex.
	SupervisedAhead int64
	// Pairs are the pairs of its documents in order. No pair is split between micro-batches.
	Pairs []Pair
}

// Same reports whether the two documents of the pair p have the same tokens and the same targets.
// Such a pair teaches no preference.
func (m *MicroBatch) Same(p Pair) bool {
	of := func(list []int32, doc int32) []int32 { return list[m.CuSeqlens[doc]:m.CuSeqlens[doc+1]] }
	return slices.Equal(of(m.IDs, p.Chosen), of(m.IDs, p.Rejected)) && slices.Equal(of(m.Targets, p.Chosen), of(m.Targets, p.Rejected))
}

// Batch is the global batch of one optimizer step or evaluation pass, or one rank's part of it. In a rank's part, the
// tokens, ids and micro-batches are only the rank's.
type Batch struct {
	Step         int // number of the step or evaluation pass, from 1
	MicroBatches []MicroBatch
	UniqueIDs    []int32 // distinct ids of the batch, in rising order
	Tokens       int64
	Supervised   int64 // over all micro-batches; the loss is divided by AllSupervised
	// SupervisedAhead counts the tokens after the next that are targets, over all micro-batches.
	SupervisedAhead int64
	Pairs           int64 // over all micro-batches; AllPairs covers all ranks
	Chosen          int64 // targets of the pairs' chosen answers; AllChosen covers all ranks
	// Ranks covers all ranks of the step; nil: this batch is the whole step.
	Ranks *AllRanks
	// Pos is the data position after this batch: rows consumed since the start of training, over all epochs.
	Pos int64
}

// NewBatch groups rows in order into micro-batches of at most maxTokens tokens; a longer row has a micro-batch of
// its own. It sets UniqueIDs but leaves Pos to the caller. It does not keep the rows.
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
		b.SupervisedAhead += mb.SupervisedAhead
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

// newMicroBatch concatenates the documents of rows, which have the given number of tokens.
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

// add appends a document to the micro-batch. ids are its tokens; labels has one label for each token.
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
	mb.SupervisedAhead += supervised(labels[min(1, n):])
}

// AheadTargets returns for each position the token to predict after the next, which is the next position's target.
// IgnoreIndex: none, as at the last two positions of a document.
func (mb *MicroBatch) AheadTargets() []int32 {
	out := make([]int32, 0, mb.Tokens)
	for i, first := range mb.CuSeqlens[:len(mb.CuSeqlens)-1] {
		out = append(append(out, mb.Targets[first+1:mb.CuSeqlens[i+1]]...), IgnoreIndex)
	}
	return out
}

// IDs returns the token ids of micro-batch i.
func (b *Batch) IDs(i int) []int32 {
	out := make([]int32, len(b.MicroBatches[i].Index))
	for t, at := range b.MicroBatches[i].Index {
		out[t] = b.UniqueIDs[at]
	}
	return out
}

// index sets UniqueIDs and each micro-batch's Index, RowStart and RowPos.
func (b *Batch) index() {
	largest := int32(-1)
	for _, mb := range b.MicroBatches {
		for _, id := range mb.IDs {
			largest = max(largest, id)
		}
	}
	place := make([]int32, largest+1) // position of each id in UniqueIDs
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

// index sets Index, RowStart and RowPos with a counting sort of the tokens by id. place maps an id to its position in
// UniqueIDs; unique is the length of UniqueIDs.
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

// docs yields the lengths in tokens of the row's documents, in order.
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

// Supervised returns the number of the row's tokens that are in the loss. The first token of each document is not.
func (r Row) Supervised() int64 { return r.supervisedFrom(1) }

// supervisedFrom counts the row's supervised tokens, from the token with this index on in each document.
func (r Row) supervisedFrom(index int) (sum int64) {
	first, labels := 0, r.labels()
	for n := range r.docs() {
		sum += supervised(labels[first+min(index-1, n) : first+n])
		first += n
	}
	return sum
}

// chosen returns how many of the row's tokens are both in the loss and in the chosen document of a pair.
func (r Row) chosen() (sum int64) {
	doc, first, labels, pairs := int32(0), 0, r.labels(), r.Pairs // pairs are in the order of their documents
	for n := range r.docs() {
		if len(pairs) > 0 && pairs[0].Chosen == doc {
			sum, pairs = sum+supervised(labels[first:first+n]), pairs[1:]
		}
		doc, first = doc+1, first+n
	}
	return sum
}

// supervised returns how many tokens of one document are in the loss, given the document's labels. The first token
// never is, since nothing precedes it.
func supervised(labels []int32) int64 {
	var n int64
	for i, l := range labels {
		if i > 0 && l != IgnoreIndex {
			n++
		}
	}
	return n
}

// Sampler selects the rows of a step. It has no state: results depend only on the step's number, so training can
// resume at any step.
type Sampler struct {
	view    View
	perStep int
	seed    int64
	shuffle bool
	// The first `done` steps have taken the rows before data position `at`, where the next step begins. From sets both;
	// otherwise they are 0.
	done int
	at   int64
}

// NewSampler returns a Sampler over the rows of view. Each step takes rowsPerStep rows (at least 1), in file order
// or, with shuffle, in a random order that depends on seed and epoch.
func NewSampler(view View, rowsPerStep int, seed int64, shuffle bool) *Sampler {
	if rowsPerStep < 1 {
		panic(fmt.Sprintf("data: %d rows a step", rowsPerStep))
	}
	return &Sampler{view: view, perStep: rowsPerStep, seed: seed, shuffle: shuffle}
}

// From returns a copy of s that continues after the given step: step+1 begins at data position pos, whatever number
// of rows the earlier steps took. If pos equals s.Pos(step), the copy gives the same rows as s. Methods of the copy
// accept only steps above step; Pos also accepts step itself.
func (s *Sampler) From(step int, pos int64) *Sampler {
	out := *s
	out.done, out.at = step, pos
	return &out
}

// StepAt returns the first step after which the data position (rows consumed so far) is at least pos.
func (s *Sampler) StepAt(pos int64) int {
	rows, epoch := int64(s.view.Rows()), s.at/int64(s.view.Rows())
	if pos <= s.at {
		return s.done
	}
	last := (pos - 1) / rows // epoch that contains pos or ends at pos
	steps := func(from, to int64) int { return int((to - from + int64(s.perStep) - 1) / int64(s.perStep)) }
	if last == epoch {
		return s.done + steps(s.at, pos)
	}
	return s.done + steps(s.at, (epoch+1)*rows) + int(last-epoch-1)*s.StepsPerEpoch() + steps(last*rows, pos)
}

// StepsPerEpoch returns the number of steps in an epoch. The last step may have fewer rows.
func (s *Sampler) StepsPerEpoch() int { return (s.view.Rows() + s.perStep - 1) / s.perStep }

// Step returns the rows of step n >= 1. The view must not be empty.
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

// Pos returns the data position after step n: the rows of steps 1 to n over all epochs; 0 for n = 0.
func (s *Sampler) Pos(n int) int64 {
	if n == s.done {
		return s.at
	}
	epoch, _, end := s.span(n)
	return int64(epoch)*int64(s.view.Rows()) + int64(end)
}

// Batch returns the batch of step n, in micro-batches of at most maxTokens tokens (see NewBatch). Errors are from
// Dataset.Read.
func (s *Sampler) Batch(n, maxTokens int) (*Batch, error) { return s.RankBatch(n, maxTokens, 0, 1) }

// RankBatch returns one rank's part of step n (see NewRankBatch). Its Pos is the data position after the whole step.
// Errors are from Dataset.Read.
func (s *Sampler) RankBatch(n, maxTokens, rank, ranks int) (*Batch, error) {
	var rows []Row
	if err := s.view.d.Read(func() { rows = s.Step(n) }); err != nil {
		return nil, err
	}
	b := NewRankBatch(n, rows, maxTokens, rank, ranks)
	b.Pos = s.Pos(n)
	return b, nil
}

// span returns the epoch of step n, counted from 0, and the range [first, end) of the step's rows in that epoch's
// order. The last step of an epoch takes only the remaining rows, so no step crosses epochs.
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

// AllRanks describes the global batch, which is divided among the ranks.
type AllRanks struct {
	// StandIn reports that the step has no row for this rank. The rank then computes a copy of
	// another row, whose gradient must be zero.
	StandIn    bool
	Tokens     int64 // of the global batch
	Supervised int64 // of the global batch; divisor of the loss
	// SupervisedAhead is the divisor of the loss of multi-token prediction.
	SupervisedAhead int64
	Pairs           int64 // of the global batch
	Chosen          int64 // of the global batch: targets of the pairs' chosen answers
	// Docs are the lengths of the documents of the global batch, in tokens.
	Docs  []int32
	First int // tokens of the global batch before this rank's
	// IDs are the UniqueIDs of each rank's batch.
	IDs [][]int32
}

// AllTokens returns the number of tokens in the global batch.
func (b *Batch) AllTokens() int64 {
	if b.Ranks == nil {
		return b.Tokens
	}
	return b.Ranks.Tokens
}

// AllSupervised returns the number of targets in the global batch that are not IgnoreIndex.
func (b *Batch) AllSupervised() int64 {
	if b.Ranks == nil {
		return b.Supervised
	}
	return b.Ranks.Supervised
}

// AllSupervisedAhead returns the number of targets among the tokens after the next in the global batch.
func (b *Batch) AllSupervisedAhead() int64 {
	if b.Ranks == nil {
		return b.SupervisedAhead
	}
	return b.Ranks.SupervisedAhead
}

// FirstToken returns how many tokens of the global batch come before this batch's first token.
func (b *Batch) FirstToken() int {
	if b.Ranks == nil {
		return 0
	}
	return b.Ranks.First
}

// AllPairs returns the number of pairs in the global batch.
func (b *Batch) AllPairs() int64 {
	if b.Ranks == nil {
		return b.Pairs
	}
	return b.Ranks.Pairs
}

// AllChosen returns the number of targets in the chosen answers of the global batch.
func (b *Batch) AllChosen() int64 {
	if b.Ranks == nil {
		return b.Chosen
	}
	return b.Ranks.Chosen
}

// AllDocs returns the lengths of the global batch's documents in tokens.
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

// NewRankBatch returns one rank's batch from the rows of the global batch. With r rows and n ranks, rank k takes rows
// k·r/n to (k+1)·r/n, in micro-batches like NewBatch's. A rank without rows takes the first row of all, without
// labels and pairs: it computes like the other ranks, but its gradients are zero.
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
		all.SupervisedAhead += r.supervisedFrom(2)
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

// rankRows returns the rows that a rank computes: its share of rows or, if that is empty, a copy of the first row
// without labels and pairs.
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

// ownRows returns the rank's share of rows, without a stand-in: it is empty if there are fewer rows than ranks and
// none is left.
func ownRows(rows []Row, rank, ranks int) []Row {
	return rows[rank*len(rows)/ranks : (rank+1)*len(rows)/ranks]
}

// uniqueIDs returns the distinct token ids of rows in rising order. used is scratch memory with one entry per id of
// the vocabulary; all entries are false before and after the call.
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
