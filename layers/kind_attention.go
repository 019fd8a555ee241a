package layers

import (
	"mt/model"
	"mt/schedule"
)

// attentionKind is the kind of the first half of a decoder block whose MLP is
// experts.
type attentionKind struct{ plainKind }

func (attentionKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.Attention) }

func (attentionKind) SavedBytes(s Spec, keep Keep, tokens int) int64 {
	return s.savedBytes(newDims(s), withoutMLP, keep, tokens)
}

func (attentionKind) WorkspaceBytes(s Spec, backward bool) int64 {
	return s.attentionBytes(withoutMLP, backward)
}

func (attentionKind) CacheBytes(s Spec, maxTokens int) int64 { return s.CacheBytes(maxTokens) }
