package layers

import (
	"math"
	"slices"
	"testing"

	"mt/device"
	"mt/device/op"
	"mt/internal/testkit/reference"
	"mt/layers/schedule"
	"mt/model"
)

// chooser is a device that counts operations of an indexer: choices by scores, and choices of all keys.
type chooser struct {
	device.Device
	scored, all *int
}

func (d chooser) Do(s device.Stream, o device.Op) {
	if o, ok := o.(*op.SelectKeys); ok {
		*map[bool]*int{true: d.scored, false: d.all}[o.Heads > 0]++
	}
	d.Device.Do(s, o)
}

// TestShortDocumentsAreNotChosenFrom: if no document has more than TopK tokens, no indexer scores keys. Latent attention
// is absorbed if the run may have longer ones. It then computes the same losses and gradients, apart from roundings.
func TestShortDocumentsAreNotChosenFrom(t *testing.T) {
	cfg := config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.RopeInterleaved = 9, 3, 3, 7, true
		c.MLA = &model.MLA{QRank: 5, KVRank: 7, NopeDim: 3, RopeDim: 4, ValueDim: 5, NormEps: 1e-3,
			Indexer: &model.Indexer{Heads: 2, HeadDim: 6, TopK: 6}}
	})
	short := []reference.Sequence{{IDs: []int32{1, 5, 3, 2, 4, 6}, Targets: []int32{5, 3, 2, 4, 6, -100}}, {IDs: []int32{3, 2}, Targets: []int32{2, -100}}}
	var results [2]map[string][]float64
	for i, longest := range []int{6, 7} {
		var scored, all int
		sp := spec(cfg, KeepNothing, device.F32)
		sp.Document = longest
		r := newRig(t, chooser{openCPU(t, 1), &scored, &all}, sp, nil)
		got := r.step(r.batch(short))
		if want := i * 2 * cfg.NumLayers; scored != 0 || all != want { // forward and backward of each block
			t.Errorf("documents of at most %d tokens: keys scored %d times and all chosen %d times, want 0 and %d", longest, scored, all, want)
		}
		results[i] = got.grads
		results[i]["losses"] = got.losses
	}
	for name, want := range results[0] {
		largest := 0.0
		for _, x := range want {
			largest = max(largest, math.Abs(x))
		}
		for i, x := range results[1][name] {
			if !(math.Abs(x-want[i]) <= 1e-5*largest) { // some tens of roundings of 6e-8
				t.Errorf("%s, element %d: %g in absorbed attention, %g in the other", name, i, x, want[i])
				break
			}
		}
	}
	var scored, all int
	r := newRig(t, chooser{openCPU(t, 1), &scored, &all}, spec(cfg, KeepNothing, device.F32), nil)
	if r.step(r.batch(micro(cfg)...)); scored != 2*cfg.NumLayers || all != 2*cfg.NumLayers {
		t.Errorf("one micro-batch with longer documents, one without: keys scored %d times and all chosen %d times, want %d of each", scored, all, 2*cfg.NumLayers)
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
