package data

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestNewBatch(t *testing.T) {
	rows := []Row{
		{IDs: []int32{5, 2, 5}},
		{IDs: []int32{2, 9, 2, 7}, Labels: []int32{2, IgnoreIndex, 2, 7}},
		{IDs: []int32{7, 5, 5, 9}, Docs: []int32{1, 3}},
	}
	const no = IgnoreIndex
	want := &Batch{
		Step: 3, UniqueIDs: []int32{2, 5, 7, 9}, Tokens: 11, Supervised: 6,
		MicroBatches: []MicroBatch{{
			Tokens: 7, IDs: []int32{5, 2, 5, 2, 9, 2, 7}, Index: []int32{1, 0, 1, 0, 3, 0, 2},
			Targets:   []int32{2, 5, no, no, 2, 7, no},
			Positions: []int32{0, 1, 2, 0, 1, 2, 3}, CuSeqlens: []int32{0, 3, 7}, MaxSeqlen: 4,
			RowStart: []int32{0, 3, 5, 6, 7}, RowPos: []int32{1, 3, 5, 0, 2, 6, 4},
			Supervised: 4,
		}, {
			Tokens: 4, IDs: []int32{7, 5, 5, 9}, Index: []int32{2, 1, 1, 3},
			Targets:   []int32{no, 5, 9, no},
			Positions: []int32{0, 0, 1, 2}, CuSeqlens: []int32{0, 1, 4}, MaxSeqlen: 3,
			RowStart: []int32{0, 0, 2, 3, 4}, RowPos: []int32{1, 2, 0, 3},
			Supervised: 2,
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

// TestNewBatchIndexes checks, on random batches, what must hold for every batch.
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

// TestLongestDocument: MaxSeqlen, by which kernels are launched, is that of the longest document,
// wherever it stands.
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
