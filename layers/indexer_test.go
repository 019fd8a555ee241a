package layers

import (
	"maps"
	"slices"
	"testing"

	"mt/device"
	"mt/device/op"
	"mt/internal/testkit/reference"
	"mt/layers/schedule"
	"mt/model"
)

// chooser is a device that notes whether an indexer ran.
type chooser struct {
	device.Device
	ran *bool
}

func (d chooser) Do(s device.Stream, o device.Op) {
	switch o.(type) {
	case *op.SelectKeys, *op.SparseAttention, *op.SparseAttentionBackward:
		*d.ran = true
	}
	d.Device.Do(s, o)
}

// TestShortDocumentsAreNotChosenFrom: documents of at most TopK tokens are attended to as without an indexer, with the
// same bits, even if the run may have longer ones.
func TestShortDocumentsAreNotChosenFrom(t *testing.T) {
	cfg := config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.RopeInterleaved = 9, 3, 3, 7, true
		c.MLA = &model.MLA{QRank: 5, KVRank: 7, NopeDim: 3, RopeDim: 4, ValueDim: 5, NormEps: 1e-3,
			Indexer: &model.Indexer{Heads: 2, HeadDim: 6, TopK: 6}}
	})
	short := []reference.Sequence{{IDs: []int32{1, 5, 3, 2, 4, 6}, Targets: []int32{5, 3, 2, 4, 6, -100}}, {IDs: []int32{3, 2}, Targets: []int32{2, -100}}}
	var want [][]float64
	for _, longest := range []int{6, 7} {
		ran := false
		sp := spec(cfg, KeepNothing, device.F32)
		sp.Document = longest
		r := newRig(t, chooser{openCPU(t, 1), &ran}, sp, nil)
		got := r.step(r.batch(short))
		if ran {
			t.Errorf("documents of at most %d tokens: an indexer ran for documents of 6", longest)
		}
		losses := [][]float64{got.losses}
		for _, name := range slices.Sorted(maps.Keys(got.grads)) {
			losses = append(losses, got.grads[name])
		}
		if want == nil {
			want = losses
		}
		if !slices.EqualFunc(losses, want, slices.Equal) {
			t.Errorf("documents of at most %d tokens: other bits", longest)
		}
	}
	ran := false
	r := newRig(t, chooser{openCPU(t, 1), &ran}, spec(cfg, KeepNothing, device.F32), nil)
	if r.step(r.batch(micro(cfg)...)); !ran {
		t.Error("no indexer ran for longer documents")
	}
}

// TestAttentionBeforeExpertsCrosses: attention whose block has experts copies as many bytes between host and device as
// attention in a block of its own.
func TestAttentionBeforeExpertsCrosses(t *testing.T) {
	cfg := config(func(c *model.Config) {
		c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep = 3, 2, 5, 1
	})
	toy, s := newToy(), onHost(spec(cfg, KeepNothing, device.BF16))
	r := newRig(t, toy, s, nil)
	mb := r.batch(micro(cfg)...).mbs[0]
	i := slices.IndexFunc(r.layouts, func(l model.Layout) bool { return l.Kind == model.Attention })
	grads, _ := r.gradients(1)
	n := mb.Tokens * s.HiddenWidth()
	x := Launch{In: r.hidden(n), Out: r.hidden(n), Grad: r.hidden(n), Grads: grads[i], MicroBatch: mb, Workspace: r.alloc(s.WorkspaceBytes()), First: true}
	for _, phase := range []schedule.Phase{schedule.Forward, schedule.Backward} {
		toy.up, toy.down = 0, 0
		r.launch(i, phase, x)
		if up, down := s.Crosses(schedule.Visit{Stage: schedule.Attention, Phase: phase}, r.layouts[i].Block, mb.Tokens); up != toy.up || down != toy.down {
			t.Errorf("phase %v: %d bytes up and %d down, said to be %d and %d", phase, toy.up, toy.down, up, down)
		}
	}
}
