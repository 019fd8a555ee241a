package actors

import (
	"fmt"
	"sync/atomic"
	"testing"

	"mt/internal/testkit"
)

// TestBytesSent: in each step, every rank sends as many bytes as the plan says: the gradients of
// the other ranks' shares, and its own part of every tile to each other rank. Embeddings are tied,
// so that the table's gradient is complete; a gradient of only the batch's rows could be smaller.
func TestBytesSent(t *testing.T) {
	testkit.NotShort(t)
	for _, bf16 := range []bool{false, true} {
		for n := 2; n <= 3; n++ {
			t.Run(fmt.Sprintf("bf16 %t ranks %d", bf16, n), func(t *testing.T) {
				tr := together(n)
				tr.tied, tr.bf16, tr.gradBF16, tr.copyTiles, tr.sync = true, bf16, bf16, true, true
				var sent [3]atomic.Int64
				tr.change = func(rank int, o *Options) {
					report := o.OnStep
					o.OnStep = func(r StepReport) {
						sent[rank].Add(r.Sent)
						report(r)
					}
				}
				tr.mustTrain(t)
				for rank := range n {
					if got, want := sent[rank].Load(), int64(tr.steps)*tr.rankPlan(rank).WireBytes(); got != want || got == 0 {
						t.Errorf("rank %d sent %d bytes in %d steps, and the plan says %d", rank, got, tr.steps, want)
					}
				}
			})
		}
	}
}
