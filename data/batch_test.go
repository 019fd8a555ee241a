package data

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"mt/internal/testkit"
)

func TestNewBatch(t *testing.T) {
	rows := []Row{
		{IDs: []int32{5, 2, 5}},
		{IDs: []int32{2, 9, 2, 7}, Labels: []int32{2, IgnoreIndex, 2, 7}},
		{IDs: []int32{7, 5, 5, 9}, Docs: []int32{1, 3}},
	}
	const no = IgnoreIndex
	want := &Batch{
		Step: 3, UniqueIDs: []int32{2, 5, 7, 9}, Tokens: 11, Supervised: 6, SupervisedAhead: 4,
		MicroBatches: []MicroBatch{{
			Tokens: 7, IDs: []int32{5, 2, 5, 2, 9, 2, 7}, Index: []int32{1, 0, 1, 0, 3, 0, 2},
			Targets:   []int32{2, 5, no, no, 2, 7, no},
			Positions: []int32{0, 1, 2, 0, 1, 2, 3}, CuSeqlens: []int32{0, 3, 7}, MaxSeqlen: 4,
			RowStart: []int32{0, 3, 5, 6, 7}, RowPos: []int32{1, 3, 5, 0, 2, 6, 4},
			Supervised: 4, SupervisedAhead: 3,
		}, {
			Tokens: 4, IDs: []int32{7, 5, 5, 9}, Index: []int32{2, 1, 1, 3},
			Targets:   []int32{no, 5, 9, no},
			Positions: []int32{0, 0, 1, 2}, CuSeqlens: []int32{0, 1, 4}, MaxSeqlen: 3,
			RowStart: []int32{0, 0, 2, 3, 4}, RowPos: []int32{1, 2, 0, 3},
			Supervised: 2, SupervisedAhead: 1,
		}},
	}
	if got := NewBatch(3, rows, 10); !reflect.DeepEqual(got, want) {
		t.Errorf("batch is\n%+v\nwant\n%+v", got, want)
	}
}

func TestNewBatchGroups(t *testing.T) {
	lengths := []int{4, 4, 2, 9, 1, 1, 3}
	tests := []struct {
		maxTokens int
		want      []int // tokens of the micro-batches
	}{
		{1, []int{4, 4, 2, 9, 1, 1, 3}},
		{4, []int{4, 4, 2, 9, 2, 3}},
		{5, []int{4, 4, 2, 9, 5}},
		{8, []int{8, 2, 9, 5}},
		{10, []int{10, 10, 4}},
		{24, []int{24}},
	}
	for _, tt := range tests {
		var rows []Row
		for _, n := range lengths {
			rows = append(rows, Row{IDs: make([]int32, n)})
		}
		var got []int
		for _, mb := range NewBatch(1, rows, tt.maxTokens).MicroBatches {
			got = append(got, mb.Tokens)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("at most %d tokens: micro-batches of %v, want %v", tt.maxTokens, got, tt.want)
		}
	}
}

func TestNewBatchWithoutRows(t *testing.T) {
	if b := NewBatch(1, nil, 8); len(b.MicroBatches) != 0 || b.Tokens != 0 || len(b.UniqueIDs) != 0 {
		t.Errorf("batch of no rows is %+v", b)
	}
}

func TestNewBatchRefusesBrokenRow(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("documents shorter than their row pass")
		}
	}()
	NewBatch(1, []Row{{IDs: []int32{1, 2, 3}, Docs: []int32{2}}}, 8)
}

// TestNewBatchIndexes: on random rows, the micro-batches together hold the rows' tokens in order,
// UniqueIDs lists the ids, and RowStart and RowPos list every token exactly once.
func TestNewBatchIndexes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var rows []Row
		for range 1 + r.IntN(8) {
			ids := make([]int32, 1+r.IntN(20))
			for i := range ids {
				ids[i] = r.Int32N(30)
			}
			cut := int32(r.IntN(len(ids) + 1))
			rows = append(rows, Row{IDs: ids, Docs: []int32{cut, int32(len(ids)) - cut}})
		}
		b := NewBatch(1, rows, 1+r.IntN(40))
		var all []int32
		var supervised int64
		for _, mb := range b.MicroBatches {
			all = append(all, mb.IDs...)
			supervised += mb.Supervised
			checkIndex(t, b, &mb)
		}
		var want []int32
		var wantSupervised int64
		for _, row := range rows {
			want = append(want, row.IDs...)
			wantSupervised += row.Supervised()
		}
		if !slices.Equal(all, want) || supervised != b.Supervised || supervised != wantSupervised || b.Tokens != int64(len(want)) {
			t.Fatalf("micro-batches hold %v, %d supervised; want %v, %d", all, supervised, want, wantSupervised)
		}
		slices.Sort(want)
		if !slices.Equal(b.UniqueIDs, slices.Compact(want)) {
			t.Fatalf("unique ids %v, want %v", b.UniqueIDs, slices.Compact(want))
		}
	}
}

func checkIndex(t *testing.T, b *Batch, mb *MicroBatch) {
	t.Helper()
	places := 0
	for u, id := range b.UniqueIDs {
		at := mb.RowPos[mb.RowStart[u]:mb.RowStart[u+1]]
		places += len(at)
		if !slices.IsSorted(at) {
			t.Fatalf("places of id %d are %v, not rising", id, at)
		}
		for _, p := range at {
			if mb.IDs[p] != id || mb.Index[p] != int32(u) {
				t.Fatalf("place %d holds id %d with index %d, listed for id %d at %d", p, mb.IDs[p], mb.Index[p], id, u)
			}
		}
	}
	if places != mb.Tokens {
		t.Fatalf("%d places listed of %d", places, mb.Tokens)
	}
}

// TestLongestDocument: MaxSeqlen is the longest document's length, whether that document is first,
// last or in between. Kernels are launched with MaxSeqlen.
func TestLongestDocument(t *testing.T) {
	row := func(docs ...int32) Row {
		r := Row{Docs: docs}
		for _, n := range docs {
			r.IDs = append(r.IDs, make([]int32, n)...)
		}
		return r
	}
	b := NewBatch(1, []Row{row(2, 7, 3), row(4), row(1)}, 16)
	if len(b.MicroBatches) != 2 || b.MicroBatches[0].MaxSeqlen != 7 || b.MicroBatches[1].MaxSeqlen != 1 {
		t.Errorf("%+v", b.MicroBatches)
	}
}

// TestSamplerFrom: a sampler made with From continues exactly like the sampler before it. If it
// takes another number of rows per step, it first takes each remaining row of the epoch once.
func TestSamplerFrom(t *testing.T) {
	s := idsSpec(t, 8, 1000, numbered(t, 10))
	s.Seed, s.Shuffle = 3, true
	d := mustOpen(t, s)
	whole := d.Sampler(4)
	ids := func(rows []Row) []int32 { return firsts(len(rows), func(i int) Row { return rows[i] }) }
	for done := 0; done <= 7; done++ {
		for per := 1; per <= 12; per++ {
			got := d.Sampler(per).From(done, whole.Pos(done))
			if got.Pos(done) != whole.Pos(done) {
				t.Fatalf("after step %d: position %d, want %d", done, got.Pos(done), whole.Pos(done))
			}
			var taken []int32
			at := whole.Pos(done)
			for n := done + 1; n <= done+15; n++ {
				rows := got.Step(n)
				if per == 4 && !reflect.DeepEqual(rows, whole.Step(n)) {
					t.Fatalf("from step %d on step %d differs", done, n)
				}
				left := 10 - at%10
				if at += min(int64(per), left); got.Pos(n) != at || int64(len(rows)) != min(int64(per), left) {
					t.Fatalf("%d rows a step from step %d on: step %d has %d rows and ends at %d, want %d", per, done, n, len(rows), got.Pos(n), at)
				}
				if first := got.StepAt(at); first != n || len(rows) > 1 && got.StepAt(at-1) != n || got.StepAt(at+1) != n+1 {
					t.Fatalf("%d rows a step from step %d on: the step that reaches %d is %d, want %d", per, done, at, first, n)
				}
				taken = append(taken, ids(rows)...)
			}
			// A sampler of one row per step gives the epoch's order. Other step sizes must follow
			// the same order.
			one := d.Sampler(1)
			var want []int32
			for k := range taken {
				want = append(want, ids(one.Step(int(whole.Pos(done))+k+1))...)
			}
			if !slices.Equal(taken, want) {
				t.Fatalf("%d rows a step from step %d on: rows %v, want %v", per, done, taken, want)
			}
		}
	}
}

// randomRows returns n rows of one or two documents each. Some of their labels are IgnoreIndex.
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

// flattened concatenates the tokens, targets and document lengths of the batches, in order.
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

// TestRankBatches: the batches of all ranks form the global batch, row by row. Each batch knows the
// global batch's sums and the ids of every other rank. A rank without rows gets a copy of a row
// that trains nothing.
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

// TestRankAlone: the batch of a single rank is the global batch.
func TestRankAlone(t *testing.T) {
	rows := randomRows(rand.New(rand.NewPCG(5, 6)), 7)
	b, want := NewRankBatch(2, rows, 30, 0, 1), NewBatch(2, rows, 30)
	_, _, docs := flattened(want)
	if !reflect.DeepEqual(b, want) || b.Ranks != nil || b.AllTokens() != b.Tokens || b.AllSupervised() != b.Supervised || !slices.Equal(b.AllDocs(), docs) {
		t.Errorf("alone the batch is %+v, want %+v", b, want)
	}
}

// TestSamplerRankBatch: the ranks' batches divide the rows of the step. The data position of each
// is the position after the whole step.
func TestSamplerRankBatch(t *testing.T) {
	s := idsSpec(t, 8, 1000, numbered(t, 10))
	s.Seed, s.Shuffle = 3, true
	sampler := mustOpen(t, s).Sampler(4)
	for step := 1; step <= 5; step++ { // the third takes the two rows that are left of the epoch
		whole := testkit.Must(sampler.Batch(step, 16))(t)
		var own []*Batch
		for rank := range 3 {
			b := testkit.Must(sampler.RankBatch(step, 16, rank, 3))(t)
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

// TestAheadTargets: the target after the next is the next position's target, in each document alone. Its count follows
// from labels and documents, also over all ranks.
func TestAheadTargets(t *testing.T) {
	const no = IgnoreIndex
	rows := []Row{{IDs: []int32{1, 2, 3, 4, 5, 6, 7}, Labels: []int32{1, no, 3, 4, 5, no, 7}, Docs: []int32{4, 1, 2}}, {IDs: []int32{8, 9, 10}}}
	b := NewBatch(1, rows, 100)
	if got, want := b.MicroBatches[0].AheadTargets(), []int32{3, 4, no, no, no, no, no, 10, no, no}; !slices.Equal(got, want) {
		t.Errorf("targets %v, want %v", got, want)
	}
	if b.AllSupervisedAhead() != 3 {
		t.Errorf("%d targets, want 3", b.AllSupervisedAhead())
	}
	for rank, want := range []int64{2, 1} {
		if part := NewRankBatch(1, rows, 100, rank, 2); part.SupervisedAhead != want || part.AllSupervisedAhead() != 3 {
			t.Errorf("rank %d: %d of %d targets, want %d of 3", rank, part.SupervisedAhead, part.AllSupervisedAhead(), want)
		}
	}
}
