package layers

import (
	"mt/model"
	"mt/schedule"
)

// recurrentKind is the kind of a decoder block with a recurrence in the place of attention and a dense MLP, mixerKind that of
// the first half of one whose MLP is experts. Their visits are those of blocks with attention.
type (
	recurrentKind struct{ plainKind }
	mixerKind     struct{ plainKind }
)

func (recurrentKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.Block) }

func (recurrentKind) SavedBytes(s Spec, keep Keep, tokens int) int64 {
	return s.savedBytes(newDims(s).recurrent(), withMLP, keep, tokens)
}

func (recurrentKind) WorkspaceBytes(s Spec, backward bool) int64 {
	return s.recurrentBytes(withMLP, backward)
}

func (recurrentKind) CacheBytes(s Spec, _ int) int64 { return s.RecurrentCacheBytes() }

func (mixerKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.Attention) }

func (mixerKind) SavedBytes(s Spec, keep Keep, tokens int) int64 {
	return s.savedBytes(newDims(s).recurrent(), withoutMLP, keep, tokens)
}

func (mixerKind) WorkspaceBytes(s Spec, backward bool) int64 {
	return s.recurrentBytes(withoutMLP, backward)
}

func (mixerKind) CacheBytes(s Spec, _ int) int64 { return s.RecurrentCacheBytes() }
