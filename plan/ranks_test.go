package plan

import (
	"fmt"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/long"
	"mt/model"
)

// ofRanks asks for a rank's plan of what request asks for, on a device that copies.
func ofRanks(ranks, rank int, change func(*Request)) Request {
	q := request()
	q.Unified, q.Ranks, q.Rank, q.Units = false, ranks, rank, optim.AdamW{}.Units
	if change != nil {
		change(&q)
	}
	return q
}

// TestBytesOfARank: what streams is on every rank, and of all else, gradients with it, as much as
// ranks leave to each: 2 + (10 + 4)/N bytes a parameter, or 4 + (8 + 4)/N in fp32. The table has what
// is allocated, and only the first rank collects checkpoints.
func TestBytesOfARank(t *testing.T) {
	long.NotShort(t)
	cfg, err := model.Preset("qwen2.5-0.5b")
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []int{2, 3, 4} {
		for _, bf16 := range []bool{false, true} {
			for rank := range ranks {
				r, err := Resolve(ofRanks(ranks, rank, func(q *Request) {
					q.Config, q.Rows, q.Clip, q.GradDType = cfg, 5, true, "fp32"
					if q.Act = device.F32; bf16 {
						q.Act = device.BF16
					}
				}))
				if err != nil {
					t.Fatal(err)
				}
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

// TestExchangeBuffers: a buffer has room for what comes in of every layer, a slab for its sum; what
// a rank does alone has neither.
func TestExchangeBuffers(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, clip := range []bool{false, true} {
			for _, ranks := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("tied %t clip %t ranks %d", tied, clip, ranks), func(t *testing.T) {
					for rank := range ranks {
						r, err := Resolve(ofRanks(ranks, rank, func(q *Request) {
							c := *q.Config
							c.TieEmbeddings = tied
							q.Config, q.Clip, q.Rows = &c, clip, 4
						}))
						if err != nil {
							t.Fatal(err)
						}
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

// TestDepthsOfRanks: too few are refused.
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
