package actors

import (
	"fmt"
	"strings"
)

// This file describes messages and works in words for transcripts. So renaming a field does not
// change the transcripts.

// words describes a message or a work.
func words(v any) string {
	switch m := v.(type) {
	case begin:
		return "begin"
	case BatchWanted:
		return "a batch is wanted, of " + stepOrPass(m.Step, m.Eval)
	case BatchReady:
		return fmt.Sprintf("the batch of %s is ready", stepOrPass(m.Step, m.Eval))
	case packBatch:
		return "pack the batch of " + stepOrPass(m.Step, m.Eval)
	case batchPacked:
		return fmt.Sprintf("the batch of %s is packed", stepOrPass(m.ready.Step, m.ready.Eval))
	case PassPlanned:
		return fmt.Sprintf("%v is planned, for weights of version %d%s", m.Pass, m.Pass.Version, waited(m.Pass.Waited))
	case LayerUpdated:
		return fmt.Sprintf("layer %d is at version %d%s%s, update %d%s", m.Layer, m.Version, also(m.Save, "and saved"), after(m.Waited), m.AdamStep, skipped(m.NonFinite))
	case fetchWeights:
		return fetchInWords(m, false)
	case fetchExpert:
		return fetchInWords(m.fetchWeights, true)
	case LayerFetched:
		return fmt.Sprintf("pass %d: the tile of visit %d is fetched into slot %d%s", m.Prog, m.Visit, m.Slot, waited(m.Cause))
	case SlotFreed:
		return fmt.Sprintf("slot %d is free", m.Slot)
	case gatherRows:
		return fmt.Sprintf("pass %d: gather rows for batch slot %d", m.p.Seq, m.Slot)
	case rowsGathered:
		return fmt.Sprintf("pass %d: rows are gathered; then %s", m.p.Seq, words(m.sent))
	case fetchBatch:
		return fmt.Sprintf("pass %d: fetch the batch into slot %d", m.p.Seq, m.Slot)
	case BatchFetched:
		return fmt.Sprintf("pass %d: the batch is fetched into slot %d%s", m.Prog, m.Slot, waited(m.Cause))
	case BatchSlotFreed:
		return fmt.Sprintf("batch slot %d is free", m.Slot)
	case fetchActivation:
		return fmt.Sprintf("fetch %d tokens of activations from %d into slot %d", m.Tokens, m.Host, m.Slot)
	case ActivationFetched:
		return fmt.Sprintf("pass %d: object %d has activation slot %d%s", m.Prog, m.Object, m.Slot, also(m.Filled, "filled"))
	case ActivationComputed:
		return fmt.Sprintf("pass %d: object %d in activation slot %d is to be spilled", m.Prog, m.Object, m.Slot)
	case spill:
		return fmt.Sprintf("spill %d tokens of activations from slot %d to %d", m.Tokens, m.Slot, m.Host)
	case ActivationSpilled:
		return fmt.Sprintf("pass %d: object %d is spilled", m.Prog, m.Object)
	case fetchPassed:
		return fmt.Sprintf("take %d tokens of activations in from place %d, into slot %d", m.Tokens, m.Passage, m.Slot)
	case ActivationLeft:
		return fmt.Sprintf("pass %d: object %d in activation slot %d is for another lane", m.Prog, m.Object, m.Slot)
	case passToHost:
		return fmt.Sprintf("pass %d tokens of activations on from slot %d to place %d", m.Tokens, m.Slot, m.Passage)
	case SlotOffered:
		return fmt.Sprintf("pass %d: activation slot %d waits for object %d", m.Prog, m.Slot, m.Object)
	case passDirect:
		return fmt.Sprintf("pass %d tokens of activations across from slot %d to slot %d of lane %d", m.Tokens, m.Slot, m.Into, m.Lane)
	case ActivationPassed:
		if m.Direct {
			return fmt.Sprintf("pass %d: object %d is in the slot that waits for it", m.Prog, m.Object)
		}
		return fmt.Sprintf("pass %d: object %d can be taken in", m.Prog, m.Object)
	case ActivationSlotFreed:
		return fmt.Sprintf("activation slot %d is free", m.Slot)
	case enqueue:
		return launchInWords(m)
	case LaunchPassed:
		return "the device has done a launch"
	case checkOutput:
		return "check the output of: " + launchInWords(m.enqueue)
	case passBatch:
		return "tell when the device has done with the batch"
	case RoutingComputed:
		return fmt.Sprintf("pass %d: layer %d has routed its tokens", m.Prog, m.Layer)
	case offloadRouting:
		return fmt.Sprintf("pass %d: offload the routing of layer %d", m.p.Seq, m.Layer)
	case RoutingLanded:
		s := fmt.Sprintf("pass %d: the experts' pairs of layer %d begin at %v", m.Prog, m.Layer, m.Offsets)
		if m.Probs != nil {
			s += fmt.Sprintf(", their probabilities add up to %v", m.Probs)
		}
		return s
	case LoadAgreed:
		return fmt.Sprintf("pass %d: the experts of all ranks have %v pairs, and probabilities that add up to %v", m.Prog, m.Load.Counts, m.Load.Probs)
	case agreeLoad:
		return fmt.Sprintf("agree on the experts' load in %v: %v pairs, probabilities that add up to %v", m.p, m.Own.Counts, m.Own.Probs)
	}
	return afterTheLoss(v)
}

// afterTheLoss describes in words the messages and works for losses, gradients and checkpoints.
func afterTheLoss(v any) string {
	switch m := v.(type) {
	case LossComputed:
		return fmt.Sprintf("pass %d: the losses in batch slot %d are computed", m.Prog, m.Slot)
	case offloadLoss:
		return fmt.Sprintf("pass %d: offload the losses of batch slot %d", m.p.Seq, m.Slot)
	case LossLanded:
		what := "step"
		if m.Eval {
			what = "evaluation after step"
		}
		return fmt.Sprintf("pass %d, %s %d: losses of %v and %v have landed", m.Prog, what, m.Step, m.Sum, m.Aux)
	case StepClosed:
		return fmt.Sprintf("step %d is closed, rate %v%s%s", m.Step, m.LR, also(m.Skip, "and skipped"), also(m.Save, "to be saved"))
	case GradComputed:
		return fmt.Sprintf("pass %d, step %d: the gradient of tile %d, layer %d part %d, is in buffer %d", m.Prog, m.Step, m.Tile, m.Layer, m.Part, m.Buf)
	case offloadGrad:
		return fmt.Sprintf("offload the gradient of tile %d, layer %d part %d, from buffer %d to slab %d, ids %v", m.Tile, m.Layer, m.Part, m.Buf, m.Slab, m.IDs)
	case GradBufferFreed:
		return fmt.Sprintf("gradient buffer %d is free", m.Buf)
	case GradLanded:
		return fmt.Sprintf("step %d: the gradient of layer %d has landed in slab %d of lane %d, ids %v", m.Step, m.Layer, m.Slab, m.Lane, m.IDs)
	case PartLanded:
		return fmt.Sprintf("a part has landed; with the last: %v", m.Whole)
	case SlabFreed:
		return fmt.Sprintf("slab %d is free", m.Slab)
	case merge:
		return fmt.Sprintf("merge the rows in slab %d into the gradient in slab %d, ids %v", m.Rows, m.Into, m.IDs)
	case merged:
		return fmt.Sprintf("the rows of layer %d are merged", m.Layer)
	case measure:
		return fmt.Sprintf("measure the gradient of layer %d in slab %d, ids %v", m.Layer, m.Slab, m.IDs)
	case GradExchanged:
		return fmt.Sprintf("step %d: the gradients of all ranks for layer %d are in exchange buffer %d", m.Step, m.Layer, m.Buffer)
	case ExchangeBufferFreed:
		return fmt.Sprintf("exchange buffer %d is free", m.Buffer)
	case exchange:
		return fmt.Sprintf("step %d: exchange the gradient of layer %d out of slab %d, into exchange buffer %d", m.Step, m.Layer, m.Slab, m.Buffer)
	case exchanged:
		return fmt.Sprintf("the gradient of layer %d is exchanged", m.Layer)
	case sumShare:
		return fmt.Sprintf("step %d: add up the gradient of layer %d from exchange buffer %d into share slab %d", m.Step, m.Layer, m.Buffer, m.Into)
	case summed:
		return fmt.Sprintf("the gradient of layer %d is added up, squares %v, ids %v", m.Layer, m.Squares, m.IDs)
	case agreeNorm:
		return fmt.Sprintf("step %d: agree on squares of %v of layer %d", m.Step, m.Squares, m.Layer)
	case normAgreed:
		return fmt.Sprintf("all ranks have squares of %v of layer %d", m.Squares, m.Layer)
	case ShareUpdated:
		return fmt.Sprintf("the share of %s%s", words(m.Updated), also(m.Updated.Unchanged, "which changes nothing"))
	case gather:
		return fmt.Sprintf("gather layer %d at version %d", m.Layer, m.Version)
	case gathered:
		return fmt.Sprintf("layer %d is gathered", m.Layer)
	case agreePass:
		return fmt.Sprintf("agree on %v: %s", m.p, endInWords(m.Own))
	case passAgreed:
		s := "the ranks have agreed on a pass"
		for rank, end := range m.All {
			s += fmt.Sprintf("; rank %d: %s", rank, endInWords(end))
		}
		return s
	case stopAgreed:
		return "the ranks stop"
	case StateFetched:
		return fmt.Sprintf("the state of layer %d is in a slot, round %d", m.Layer, m.Round)
	case StateUpdated:
		return fmt.Sprintf("the state of layer %d is updated%s", m.Updated.Layer, also(m.Updated.Save, "and saved"))
	case StateFlushed:
		return fmt.Sprintf("the state of layer %d, which is to be saved, is written", m.Layer)
	case awaitSlot:
		return fmt.Sprintf("wait until weight slot %d is idle, for layer %d", m.Slot, m.Layer)
	case slotIdle:
		return fmt.Sprintf("weight slot %d is idle, for layer %d", m.copy.Slot, m.copy.Layer)
	case readParams:
		return fmt.Sprintf("read the tile of layer %d into the buffer of weight slot %d", m.Layer, m.Slot)
	case paramsRead:
		return fmt.Sprintf("the tile of layer %d is in the buffer of weight slot %d", m.copy.Layer, m.copy.Slot)
	case StatesWanted:
		return "the states of all layers are wanted"
	case fetchState:
		return fmt.Sprintf("read the state of layer %d into state slot %d", m.Layer, m.Slot)
	case stateRead:
		return fmt.Sprintf("the state of layer %d is read", m.Layer)
	case flushState:
		return fmt.Sprintf("write the state of layer %d", m.Layer)
	case stateWritten:
		return fmt.Sprintf("the state of layer %d is written", m.Layer)
	case GradMeasured:
		return fmt.Sprintf("the gradient of layer %d is measured, in slab %d of lane %d, and is to wait on a disk", m.Layer, m.Slab, m.Lane)
	case putGrad:
		return fmt.Sprintf("write the gradient of layer %d from slab %d", m.Layer, m.Slab)
	case gradWritten:
		return fmt.Sprintf("the gradient of layer %d is written", m.Layer)
	case GradsWanted:
		return "the gradients of all layers are wanted"
	case fetchGrad:
		return fmt.Sprintf("read the gradient of layer %d", m.Layer)
	case gradRead:
		return fmt.Sprintf("the gradient of layer %d is read", m.Layer)
	case dropState:
		return fmt.Sprintf("drop the state of layer %d", m.Layer)
	case measured:
		return fmt.Sprintf("the gradient of layer %d has squares of %v", m.Layer, m.Squares)
	case prepareMatrix:
		return fmt.Sprintf("prepare matrix %d of layer %d from slab %d, in buffer %d of lane %d: update %d, rate %v, clip %v", m.Matrix, m.Of.Layer, m.Of.Slab, m.Buffer, m.Lane, m.Of.AdamStep, m.Of.LR, m.Of.Clip)
	case MatrixPrepared:
		return fmt.Sprintf("matrix %d of layer %d is prepared, in buffer %d", m.Matrix, m.Layer, m.Buffer)
	case orthogonalize:
		return fmt.Sprintf("orthogonalize matrix %d of layer %d, in buffer %d of lane %d", m.Matrix, m.Layer, m.Buffer, m.Lane)
	case MatrixOrthogonalized:
		return fmt.Sprintf("matrix %d of layer %d is orthogonalized, in buffer %d", m.Matrix, m.Layer, m.Buffer)
	case applyMatrix:
		return fmt.Sprintf("apply matrix %d of layer %d, from buffer %d of lane %d: rate %v", m.Matrix, m.Of.Layer, m.Buffer, m.Lane, m.Of.LR)
	case MatrixApplied:
		return fmt.Sprintf("matrix %d of layer %d is applied, from buffer %d", m.Matrix, m.Layer, m.Buffer)
	case update:
		return fmt.Sprintf("update layer %d from slab %d, ids %v: update %d, rate %v, clip %v", m.Layer, m.Slab, m.IDs, m.AdamStep, m.LR, m.Clip)
	case unitsUpdated:
		return fmt.Sprintf("layer %d is updated", m.Layer)
	case updateDone:
		return fmt.Sprintf("layer %d is updated", m.Layer)
	case StepUpdated:
		return fmt.Sprintf("all layers are at step %d%s, norm %v, update %d%s", m.Step, also(m.Skipped, "skipped"), m.GradNorm, m.AdamStep, skipped(m.NonFinite))
	case SaveRequested:
		return saveInWords(m)
	case openSave:
		return "open: " + saveInWords(m.Save)
	case saveOpened:
		return "the checkpoint is open"
	case saveLayer:
		return fmt.Sprintf("write layer %d", m.Layer)
	case layerWritten:
		return fmt.Sprintf("layer %d of step %d is written", m.Layer, m.Step)
	case LayerSaved:
		return fmt.Sprintf("layer %d of step %d is saved", m.Layer, m.Step)
	case commitSave:
		return fmt.Sprintf("commit: %s; update %d%s", saveInWords(m.Save), m.AdamStep, skipped(m.NonFinite))
	case saveCommitted:
		return fmt.Sprintf("the checkpoint of step %d stands", m.Step)
	case SaveDone:
		return fmt.Sprintf("the save of step %d is done", m.Step)
	case StepReport:
		return fmt.Sprintf("report step %d, pass %d: loss %v, norm %v, rate %v%s%s, tokens %d of %d, supervised %d", m.Step, m.Prog, m.Loss, m.GradNorm, m.LR,
			also(m.Skipped, "skipped"), also(m.Saved, "saved"), m.Tokens, m.TotalTokens, m.Supervised)
	case EvalReport:
		return fmt.Sprintf("report the evaluation after step %d: loss %v over %d tokens", m.Step, m.Loss, m.Tokens)
	case StepReported:
		return fmt.Sprintf("step %d is reported", m.Step)
	case flushReports:
		return "is all reported?"
	case reported:
		return "all is reported"
	case StopRequested:
		return "stop"
	case AbortRequested:
		return "give up the step"
	case StepAbortRequested:
		return fmt.Sprintf("step %d is given up", m.Step)
	case StepDropped:
		return fmt.Sprintf("step %d is dropped", m.Step)
	case runEnded:
		return fmt.Sprintf("the run ends, error %v", m.Err)
	}
	panic(fmt.Sprintf("no words for %T", v))
}

func fetchInWords(m fetchWeights, expert bool) string {
	return fmt.Sprintf("pass %d: fetch tile %d, layer %d part %d%s, into slot %d", m.Prog, m.Tile, m.Layer, m.Part, also(expert, "an expert"), m.Slot)
}

// launchInWords describes a launch: its slots and gradient buffer, and which copies it waits for.
func launchInWords(m enqueue) string {
	v := m.p.Visits[m.p.Launches[m.Index].Visit]
	s := fmt.Sprintf("pass %d, launch %d: layer %d part %d %s %s, batch slot %d", m.p.Seq, m.Index, v.Layer, v.Part, v.Stage, v.Phase, m.Batch)
	for _, slot := range []struct {
		name string
		at   int
		wait bool
	}{{"weights", m.Weights, m.WaitWeights}, {"input", m.In, m.WaitIn}, {"output", m.Out, false}, {"gradient", m.Gr, m.WaitGr}, {"buffer", m.Grad, false}} {
		if slot.at >= 0 || slot.wait {
			s += fmt.Sprintf(", %s %d%s", slot.name, slot.at, also(slot.wait, "to wait for"))
		}
	}
	s += also(m.WaitBatch, "after the batch") + also(m.First, "first") + also(m.Last, "last")
	if m.Pairs > 0 || m.From > 0 {
		s += fmt.Sprintf(", pairs %d from %d", m.Pairs, m.From)
	}
	return s + fmt.Sprintf("; blocked by %s, fetched after %s", m.Blocked, m.Fetched)
}

func endInWords(e passEnd) string {
	return fmt.Sprintf("losses of %v%s", e.Sum, also(e.Stop, "asked to stop"))
}

func saveInWords(m SaveRequested) string {
	s := fmt.Sprintf("save step %d at row %d, %d tokens", m.Step, m.DataPos, m.Tokens)
	if m.AtRest {
		s += fmt.Sprintf(", at rest, update %d%s", m.AdamStep, skipped(m.NonFinite))
	}
	return s
}

func stepOrPass(n int, eval bool) string {
	if eval {
		return fmt.Sprintf("evaluation pass %d", n)
	}
	return fmt.Sprintf("step %d", n)
}

// also returns ", word" if holds is set.
func also(holds bool, word string) string {
	if !holds {
		return ""
	}
	return ", " + word
}

func waited(c Cause) string {
	if c == NoStall {
		return ""
	}
	return ", after waiting for " + strings.ReplaceAll(c.String(), "_", " ")
}

func skipped(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d skipped in a row", n)
}

// after says in words what an update waited for, the stall cause c.
func after(c Cause) string {
	switch c {
	case NoStall:
		return ""
	case StallCheckpoint:
		return ", after a save"
	}
	return ", after " + c.String()
}
