package plan

import "cmp"

// This file handles rows that do not fit on the device. Their hidden states stay in host memory. A launch copies chunks
// of the rows to the device, and attention runs one group of key/value heads at a time. The results do not change.

// maySendHidden reports whether Resolve may move hidden states to the host if the run does not fit
// otherwise. The conditions: the request leaves their location open, rows are longer than the
// largest automatic micro-batch, and a micro-batch has at most one row.
func (r *Run) maySendHidden(q Request) bool {
	return auto(q.HiddenStates) && !r.OneMemory && q.keepsHidden() == "" && q.RowTokens > maxMicroBatchTokens && r.Limits.MicroBatchTokens <= q.RowTokens
}

// keepsHidden returns the reason why hidden states must stay on the device; "": they can be on the host.
func (q Request) keepsHidden() string {
	switch {
	case q.Config.NormsExperts():
		return "with a norm of the experts' sum, which every block keeps on the device"
	case q.Config.PerLayerSize > 0 || q.Config.SharedKV > 0:
		return "with per-layer inputs or shared keys and values, which pass from block to block beside the hidden state"
	case q.Config.Chooses(q.document()):
		return "where documents may be longer than index_topk: an indexer chooses their keys among those of all tokens"
	case q.Config.Ahead > 0:
		return "with train_mtp, for which embeddings pass from block to block beside the hidden state"
	case q.Devices > 1:
		return "on several devices, which pass them on from one to the next"
	case q.Recompute == "none":
		return "with recompute: none, which keeps on the device what would be computed again"
	}
	return ""
}

// document returns the most tokens of a document.
func (q Request) document() int { return cmp.Or(q.Document, q.RowTokens) }

// ActivationSlotBytes returns the size of an activation slot on the device and on the host. With hidden states on the
// host, the device size is 0; else the host size is 0.
func (r *Run) ActivationSlotBytes() (device, host int64) {
	n := r.ActivationBytes(r.Limits.MicroBatchTokens)
	if r.Spec.OnHost {
		return 0, n
	}
	return n, 0
}

// ScratchBytes returns the scratch memory that launches need on the host if hidden states are there; otherwise 0.
func (r *Run) ScratchBytes() int64 { return r.Spec.ScratchBytes(!r.EvalOnly) }
