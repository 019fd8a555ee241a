package data

import "slices"

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
