package plan

// This file is about rows that do not fit on the device: their hidden states lie on the host, a launch has
// chunks of them on the device, and attention one group of key/value heads at a time. No result depends on it.

// maySendHidden says whether hidden states may go to the host where the run does not fit on the device
// otherwise: the row is long, and micro-batches are no longer than it.
func (r *Run) maySendHidden(q Request) bool {
	return auto(q.HiddenStates) && !r.OneMemory && q.keepsHidden() == "" && q.RowTokens > maxMicroBatchTokens && r.Limits.MicroBatchTokens <= q.RowTokens
}

// keepsHidden says why hidden states cannot lie on the host; empty: they can.
func (q Request) keepsHidden() string {
	switch {
	case q.Config.ExpertBlocks() > 0:
		return "with experts, which see all tokens of a step at once"
	case q.Config.GatedDeltaNet != nil:
		return "with recurrences, whose convolution and state go through all tokens of a row"
	case q.Config.OutputGate:
		return "with an output gate, which is made before attention and read behind it"
	case q.Devices > 1:
		return "on several devices, which pass them on from one to the next"
	case q.Recompute == "none":
		return "with recompute: none, which keeps on the device what would be computed again"
	}
	return ""
}

// ActivationSlotBytes is what an activation slot takes on the device, or on the host where hidden states
// lie there.
func (r *Run) ActivationSlotBytes() (device, host int64) {
	n := r.ActivationBytes(r.Limits.MicroBatchTokens)
	if r.Spec.OnHost {
		return 0, n
	}
	return n, 0
}

// ScratchBytes is the host memory that launches work with where hidden states lie on the host; else 0.
func (r *Run) ScratchBytes() int64 { return r.Spec.ScratchBytes(!r.EvalOnly) }
