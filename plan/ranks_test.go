package plan

import (
	"fmt"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// ofRanks requests the plan of one rank of several, for request's run on a device that copies
// tiles. change, if not nil, edits the request.
func ofRanks(ranks, rank int, change func(*Request)) Request {
	q := request()
	q.Unified, q.Ranks, q.Rank, q.Units = false, ranks, rank, optim.AdamW{}.Units
	if change != nil {
		change(&q)
	}
	return q
}

// TestBytesOfARank: every rank has all tiles and 1/N of state and gradients. With bf16 weights that
// is 2 + (2 + 8 + 4)/N bytes a parameter, of which 2 are the lower half, 8 the moments and 4 the
// gradient; in fp32 it is 4 + (8 + 4)/N. The table equals the allocation, and only the first rank
// gathers checkpoints.
func TestBytesOfARank(t *testing.T) {
	testkit.NotShort(t)
	cfg := testkit.Must(model.Preset("qwen2.5-0.5b"))(t)
	for _, ranks := range []int{2, 3, 4} {
		for _, bf16 := range []bool{false, true} {
			for rank := range ranks {
				r := testkit.Must(Resolve(ofRanks(ranks, rank, func(q *Request) {
					q.Config, q.Rows, q.Clip, q.GradDType = cfg, 5, true, "fp32"
					if q.Act = device.F32; bf16 {
						q.Act = device.BF16
					}
				})))(t)
				rows := map[string]int64{}
				for _, row := range r.Table().Rows {
					if row.Where == "host" {
						rows[row.Purpose] += row.Bytes
					}
				}
				params := float64(r.Table().Params)
				streamed, beside := 4.0, 8.0
				if bf16 {
					streamed, beside = 2, 10
				}
				kept := float64(rows["weights"] + rows["lo planes"] + rows["moments"] + rows["gradient shares"])
				if want := streamed + (beside+4)/float64(ranks); kept/params < 0.97*want || kept/params > 1.03*want {
					t.Errorf("rank %d of %d, bf16 %t: %.3f bytes a parameter, wanted %.3f", rank, ranks, bf16, kept/params, want)
				}
				if got := rows["collected layer"] > 0; got != (rank == 0) {
					t.Errorf("rank %d of %d: %d bytes for checkpoints", rank, ranks, rows["collected layer"])
				}
				if n := r.Limits.Tokens; n != (5+ranks-1)/ranks*r.RowTokens {
					t.Errorf("%d ranks: %d tokens each of 5 rows of %d", ranks, n, r.RowTokens)
				}
			}
		}
	}
}

// TestExchangeBuffers: an exchange buffer fits the gradients that a rank receives for any layer,
// and a share's slab fits their sum. A single rank has neither.
func TestExchangeBuffers(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, clip := range []bool{false, true} {
			for _, ranks := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("tied %t clip %t ranks %d", tied, clip, ranks), func(t *testing.T) {
					for rank := range ranks {
						r := testkit.Must(Resolve(ofRanks(ranks, rank, func(q *Request) {
							c := *q.Config
							c.TieEmbeddings = tied
							q.Config, q.Clip, q.Rows = &c, clip, 4
						})))(t)
						slabs := r.ShareSlabBytes()
						if ranks == 1 {
							if r.ExchangeBytes() != 0 || slabs != nil || r.Depths.ExchangeBuffers+r.Depths.GathersAhead != 0 || r.SlabsAreCredits() == clip || r.Shares != nil {
								t.Fatalf("alone: %+v", r.Depths)
							}
							return
						}
						d := r.Depths
						if d.ExchangeBuffers != 2 || d.GathersAhead != 2 || !r.SlabsAreCredits() || len(r.SlabBytes()) != d.GradSlabs || r.GradsInPlace() {
							t.Fatalf("depths %+v, %d slabs", d, len(r.SlabBytes()))
						}
						if want := map[bool]int{true: len(r.Layouts), false: 2}[clip]; len(slabs) != want {
							t.Fatalf("%d slabs for sums, wanted %d", len(slabs), want)
						}
						for l, g := range r.Gradients() {
							need := r.Share(l).Elems() * r.GradBytes()
							if g.OfRows(l) {
								need = min(need, int64(r.Limits.UniqueIDs)*g.Row*r.GradBytes())
							}
							if r.ExchangeBytes() < need*int64(ranks) {
								t.Errorf("layer %d: %d ranks send up to %d bytes each into a buffer of %d", l, ranks, need, r.ExchangeBytes())
							}
							if at := min(l, len(slabs)-1); slabs[at] < need {
								t.Errorf("layer %d: a slab of %d bytes for %d", l, slabs[at], need)
							}
						}
					}
				})
			}
		}
	}
}

// TestDepthsOfRanks: too few exchange buffers or gathers are refused, and the error names the key.
func TestDepthsOfRanks(t *testing.T) {
	for key, d := range map[string]Depths{"exchange_buffers": {ExchangeBuffers: -1}, "gathers_ahead": {GathersAhead: -1}} {
		if _, err := Resolve(ofRanks(2, 0, func(q *Request) { q.Depths = d })); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	r, err := Resolve(ofRanks(2, 1, func(q *Request) { q.Depths = Depths{ExchangeBuffers: 5, GathersAhead: 4} }))
	if err != nil || r.Depths.ExchangeBuffers != 5 || r.Depths.GathersAhead != 4 {
		t.Errorf("asked for 5 and 4: %+v, %v", r, err)
	}
}

// TestBuffersHoldAllRowsOfAShare: a share may begin and end inside an embedding row. If a batch has
// every id, slab and exchange buffer have room for all rows of the share, and the rows cut at its
// ends count in full.
func TestBuffersHoldAllRowsOfAShare(t *testing.T) {
	c := *config(2, false)
	// With these sizes a unit of the optimizer ends inside a row, so a share does too, and no other
	// layer needs a larger buffer.
	c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumHeads, c.NumKVHeads, c.HeadDim = 5000, 24, 8, 2, 1, 12
	for _, ranks := range []int{2, 3} {
		for rank := range ranks {
			r := resolve(t, ofRanks(ranks, rank, func(q *Request) { q.Config, q.Rows, q.RowTokens = &c, 6*ranks, 1024 }))
			g, own := r.Gradients()[0], r.Share(0)
			if !g.OfRows(0) || r.Limits.UniqueIDs < c.VocabSize || g.Row != int64(c.HiddenSize) {
				t.Fatalf("rows of %d, up to %d ids: this is not what the test is of", g.Row, r.Limits.UniqueIDs)
			}
			touched, row := int64(0), g.Row*r.GradBytes() // behind the last row is padding, which counts as rows
			for id := range int64(c.VocabSize) {
				if id*g.Row < own.To && (id+1)*g.Row > own.From {
					touched++
				}
			}
			if touched*g.Row == own.Elems() {
				t.Fatalf("rank %d of %d: the share [%d, %d) cuts no row", rank, ranks, own.From, own.To)
			}
			if got, want := r.ShareSumBytes(0), touched*row; got < want || got > want+4*row {
				t.Errorf("rank %d of %d: %d bytes for the sum of %d rows, want %d", rank, ranks, got, touched, want)
			}
			if got, want := r.ExchangeBytes(), int64(ranks)*touched*row; got < want {
				t.Errorf("rank %d of %d: a buffer of %d bytes for %d rows of each rank, want %d", rank, ranks, got, touched, want)
			}
		}
	}
}

// TestBuffersOfFewIDs: if a batch has fewer ids than a share has rows, buffers are smaller than the
// share. An exchange buffer fits each rank's own ids, and the sum's slab the ids of all ranks.
func TestBuffersOfFewIDs(t *testing.T) {
	c := *config(1, false)
	c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumHeads, c.NumKVHeads, c.HeadDim = 50000, 24, 8, 2, 1, 12
	r := resolve(t, ofRanks(2, 1, func(q *Request) { q.Config, q.Rows, q.RowTokens = &c, 4, 100 }))
	row := r.Gradients()[0].Row * r.GradBytes()
	if got := r.ShareSumBytes(0); r.Limits.UniqueIDs != 200 || got != 400*row {
		t.Errorf("%d ids a rank, %d bytes for their sum, want %d", r.Limits.UniqueIDs, got, 400*row)
	}
}
