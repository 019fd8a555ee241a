package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/layers/schedule"
	"mt/model"
)

// blockKind is the kind of a decoder block with a dense MLP. With mlp false it is the kind of the first half of a block
// with experts. With recurrent the layer has the model's recurrence in place of attention.
type blockKind struct {
	plainKind
	mlp, recurrent bool
}

func (k blockKind) Stages(Spec, model.Layout) schedule.Layer {
	if k.mlp {
		return once(schedule.Block)
	}
	return once(schedule.Attention)
}

func (k blockKind) SavedBytes(s Spec, block int, keep Keep, tokens int) int64 {
	return s.savedBytes(s.dims(block), k.mlp, keep, tokens)
}

func (k blockKind) WorkspaceBytes(s Spec, backward bool) int64 {
	most := int64(0)
	for d, keep := range s.leastKept(k.kind()) {
		if !backward {
			keep = KeepNothing // an evaluation keeps nothing, so it needs most
		}
		for _, tokens := range []int{s.MaxTokens, min(s.MaxTokens, op.MostSummed)} { // shorter launches may need memory for sums that longer ones do not (op.MostSummed)
			ws, saved := allotter{dry: true}, allotter{dry: true}
			s.blockBuffers(d, k.mlp, keep, tokens, backward, &saved, &ws)
			most = max(most, ws.used)
		}
	}
	return most
}

// leastKept returns the lowest Keep level among the blocks of a kind, for each set of their
// widths (dims). Tensors that a block does not keep are in the workspace, so the block with the
// lowest level needs the largest workspace.
func (s Spec) leastKept(kind model.LayerKind) map[dims]Keep {
	least := map[dims]Keep{}
	for block := range s.Config.Blocks() {
		if s.Config.FirstLayer(block) != kind {
			continue
		}
		d, keep := s.dims(block), s.Keep.Of(block)
		if s.KeptShare(block) < 1 {
			keep = KeepNothing
		}
		if was, some := least[d]; !some || keep < was {
			least[d] = keep
		}
	}
	return least
}

// kind returns the model.LayerKind that k describes.
func (k blockKind) kind() model.LayerKind {
	switch {
	case k.mlp && k.recurrent:
		return model.Recurrent
	case k.recurrent:
		return model.Mixer
	case k.mlp:
		return model.Block
	}
	return model.Attention
}

func (k blockKind) CacheBytes(s Spec, block, maxTokens int) int64 {
	if k.recurrent {
		return s.recurrentCacheBytes()
	}
	return s.CacheBytes(block, maxTokens)
}

func (k blockKind) Launch(t *Templates, x *Launch) {
	saved := x.Saved.Dev
	switch phase := x.Visit.Phase; {
	case phase == schedule.Backward && k.mlp:
		t.BlockBackward(x.Stream, x.Block, x.Weights, x.Grads, x.Grad, x.In, x.MicroBatch, saved, x.Workspace, x.First)
		return
	case phase == schedule.Backward:
		t.AttentionBackward(x.Stream, x.Block, x.Weights, x.Grads, x.Grad, x.In, x.MicroBatch, saved, x.Workspace, x.First)
		return
	case phase == schedule.Generate && k.mlp:
		t.BlockForwardCached(x.Stream, x.Block, x.Weights, x.Out.Dev, x.In.Dev, x.Cached, x.Cache, x.Workspace)
		return
	case phase == schedule.Generate:
		t.AttentionForwardCached(x.Stream, x.Block, x.Weights, x.Out.Dev, x.In.Dev, x.Cached, x.Cache, x.Workspace)
		return
	case phase == schedule.Evaluate:
		saved = device.Mem{}
	}
	if k.mlp {
		t.BlockForward(x.Stream, x.Block, x.Weights, x.Out, x.In, x.MicroBatch, saved, x.Workspace)
		return
	}
	t.AttentionForward(x.Stream, x.Block, x.Weights, x.Out, x.In, x.MicroBatch, saved, x.Workspace)
}
