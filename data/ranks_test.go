package data

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// randomRows are n rows of one or two documents; some of their labels are ignored.
func randomRows(r *rand.Rand, n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		ids := make([]int32, 1+r.IntN(20))
		labels := make([]int32, len(ids))
		for k := range ids {
			ids[k] = r.Int32N(30)
			if labels[k] = ids[k]; r.IntN(3) == 0 {
				labels[k] = IgnoreIndex
			}
		}
		cut := int32(r.IntN(len(ids) + 1))
		rows[i] = Row{IDs: ids, Labels: labels, Docs: []int32{cut, int32(len(ids)) - cut}}
	}
	return rows
}

// flattened are the tokens, targets and document lengths of a batch, in order.
func flattened(batches ...*Batch) (ids, targets, docs []int32) {
	for _, b := range batches {
		for _, m := range b.MicroBatches {
			ids, targets = append(ids, m.IDs...), append(targets, m.Targets...)
			for i, first := range m.CuSeqlens[:len(m.CuSeqlens)-1] {
				docs = append(docs, m.CuSeqlens[i+1]-first)
			}
		}
	}
	return ids, targets, docs
}

// TestRankBatches: the batches of all ranks together are the global batch, row by row; each
// knows what the global batch has, and which ids each of the others has. Ranks without a row
// have one that nothing is learnt from.
func TestRankBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		rows, ranks := randomRows(r, 1+r.IntN(9)), 2+r.IntN(5)
		name := fmt.Sprintf("round %d: %d rows, %d ranks", round, len(rows), ranks)
		whole := NewBatch(5, rows, 25)
		var own []*Batch // of the ranks that have rows
		var all []*Batch
		for rank := range ranks {
			b := NewRankBatch(5, rows, 25, rank, ranks)
			all = append(all, b)
			from, to := rank*len(rows)/ranks, (rank+1)*len(rows)/ranks
			if b.Ranks.StandIn != (from == to) {
				t.Fatalf("%s: rank %d has a batch that stands in for rows: %t", name, rank, b.Ranks.StandIn)
			}
			if from < to {
				own = append(own, b)
				continue
			}
			ids, targets, _ := flattened(b)
			if !slices.Equal(ids, rows[0].IDs) || b.Supervised != 0 || slices.Max(targets) != IgnoreIndex {
				t.Fatalf("%s: rank %d has no row, and ids %v with targets %v", name, rank, ids, targets)
			}
		}
		wantIDs, wantTargets, wantDocs := flattened(whole)
		ids, targets, docs := flattened(own...)
		if !slices.Equal(ids, wantIDs) || !slices.Equal(targets, wantTargets) || !slices.Equal(docs, wantDocs) {
			t.Fatalf("%s: together ids %v, targets %v, documents %v\nwant %v, %v, %v", name, ids, targets, docs, wantIDs, wantTargets, wantDocs)
		}
		for rank, b := range all {
			if b.Step != 5 || b.AllTokens() != whole.Tokens || b.AllSupervised() != whole.Supervised || !slices.Equal(b.AllDocs(), wantDocs) {
				t.Fatalf("%s: rank %d says step %d, %d tokens, %d supervised, documents %v; want %d, %d, %v",
					name, rank, b.Step, b.AllTokens(), b.AllSupervised(), b.AllDocs(), whole.Tokens, whole.Supervised, wantDocs)
			}
			if first, want := b.FirstToken(), tokensOf(rows[:rank*len(rows)/ranks]); first != want {
				t.Fatalf("%s: rank %d begins with token %d of the step, want %d", name, rank, first, want)
			}
			if len(b.Ranks.IDs) != ranks || !reflect.DeepEqual(b.Ranks.IDs, all[0].Ranks.IDs) || !slices.Equal(b.Ranks.IDs[rank], b.UniqueIDs) {
				t.Fatalf("%s: rank %d has the ids %v, and lists %v", name, rank, b.UniqueIDs, b.Ranks.IDs)
			}
		}
	}
}

func tokensOf(rows []Row) (n int) {
	for _, r := range rows {
		n += len(r.IDs)
	}
	return n
}

// TestRankAlone: the only rank's batch is the batch, and says of the global one what it is.
func TestRankAlone(t *testing.T) {
	rows := randomRows(rand.New(rand.NewPCG(5, 6)), 7)
	b, want := NewRankBatch(2, rows, 30, 0, 1), NewBatch(2, rows, 30)
	_, _, docs := flattened(want)
	if !reflect.DeepEqual(b, want) || b.Ranks != nil || b.AllTokens() != b.Tokens || b.AllSupervised() != b.Supervised || !slices.Equal(b.AllDocs(), docs) {
		t.Errorf("alone the batch is %+v, want %+v", b, want)
	}
}

// TestSamplerRankBatch: the ranks take the rows of the step between them, and stand at the
// position after all of them.
func TestSamplerRankBatch(t *testing.T) {
	s := idsSpec(t, 8, 1000, numbered(t, 10))
	s.Seed, s.Shuffle = 3, true
	sampler := mustOpen(t, s).Sampler(4)
	for step := 1; step <= 5; step++ { // the third takes the two rows that are left of the epoch
		whole, err := sampler.Batch(step, 16)
		if err != nil {
			t.Fatal(err)
		}
		var own []*Batch
		for rank := range 3 {
			b, err := sampler.RankBatch(step, 16, rank, 3)
			if err != nil {
				t.Fatal(err)
			}
			if b.Pos != whole.Pos || b.AllTokens() != whole.Tokens {
				t.Errorf("step %d, rank %d: position %d after %d tokens, want %d, %d", step, rank, b.Pos, b.AllTokens(), whole.Pos, whole.Tokens)
			}
			if b.Supervised > 0 {
				own = append(own, b)
			}
		}
		got, _, _ := flattened(own...)
		if want, _, _ := flattened(whole); !slices.Equal(got, want) {
			t.Errorf("step %d: the ranks have %v, want %v", step, got, want)
		}
	}
}
