package layers

import (
	"mt/model"
	"mt/schedule"
)

// blockKind is the kind of a decoder block with a dense MLP.
type blockKind struct{ plainKind }

func (blockKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.Block) }

func (blockKind) SavedBytes(s Spec, keep Keep, tokens int) int64 {
	return s.savedBytes(newDims(s), withMLP, keep, tokens)
}

func (blockKind) WorkspaceBytes(s Spec, backward bool) int64 {
	return s.attentionBytes(withMLP, backward)
}

func (blockKind) CacheBytes(s Spec, maxTokens int) int64 { return s.CacheBytes(maxTokens) }
