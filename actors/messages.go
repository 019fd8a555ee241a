package actors

import (
	"time"

	"mt/data"
)

// Cause is why the compute stream stood still.
type Cause uint8

// The causes of a stall.
const (
	NoStall Cause = iota
	StallWeights
	StallUpdate
	StallActivation
	StallGradBuffer
	StallData
	StallCheckpoint
	StallRouting // the experts' tokens were not yet counted on the host
	NumCauses
)

func (c Cause) String() string {
	return [...]string{"none", "weights", "update", "activation", "gradient_buffer", "data", "checkpoint", "routing"}[c]
}

// Messages. Commands are imperative, events past tense. Prog is the number of the
// pass that a message belongs to (Pass.Seq).

// BatchWanted asks the Feeder for the batch of a training step, or of an
// evaluation pass.
type BatchWanted struct {
	Step int
	Eval bool
}

// BatchReady brings it.
type BatchReady struct {
	Step  int
	Eval  bool
	Batch *data.Batch
}

// PassPlanned hands out the next pass.
type PassPlanned struct{ Pass *Pass }

// StepClosed tells that the loss of a training step is known; updates may go.
type StepClosed struct {
	Step int
	LR   float64
	// Skip: the loss is not finite; no layer is updated.
	Skip bool
	// Save: the state after this step is written to disk.
	Save bool
}

// LayerUpdated tells that a layer's weights are at Version (steps taken).
type LayerUpdated struct {
	Layer, Version int
	// Save: the Checkpointer writes the layer at this version.
	Save bool
	// Held: the update had to wait for the Checkpointer.
	Held bool
	// AdamStep counts the updates made, NonFinite the steps skipped in a row.
	AdamStep  int64
	NonFinite int
}

// LayerFetched tells that the tile of a visit is on its way into Slot: the compute
// stream waits for the slot's event.
type LayerFetched struct {
	Prog, Visit, Slot int
	Cause             Cause
}

// BatchFetched is LayerFetched for the embedding: ids and gathered rows.
type BatchFetched struct {
	Prog, Slot int
	Cause      Cause
}

// SlotFreed returns a weight slot; its idle event is recorded.
type SlotFreed struct{ Slot int }

// BatchSlotFreed returns a batch slot.
type BatchSlotFreed struct{ Slot int }

// ActivationFetched grants an activation slot to an object of the program:
// filled from the host (Filled) or to be written.
type ActivationFetched struct {
	Prog, Object, Slot int
	Filled             bool
}

// ActivationComputed hands an activation to the Offloader, to be spilled.
type ActivationComputed struct{ Prog, Object, Slot int }

// ActivationSpilled tells that an activation is on the host.
type ActivationSpilled struct{ Prog, Object int }

// ActivationSlotFreed returns an activation slot.
type ActivationSlotFreed struct{ Slot int }

// GradComputed tells that a layer's gradient is complete in device buffer Buf, or
// that of one of its parts, Tile. Complete: it was the last of them.
type GradComputed struct {
	Prog, Step, Layer, Part, Tile, Buf int
	Complete                           bool
}

// RoutingComputed tells that it is decided on the device which tokens go to which
// experts of a layer.
type RoutingComputed struct{ Prog, Layer int }

// RoutingLanded brings where in the list of pairs (token, choice), which stays on
// the device, each expert's begin and end.
type RoutingLanded struct {
	Prog, Layer int
	Offsets     []int32 // expert e, from 0 on, has pairs Offsets[e] to Offsets[e+1]
}

func (m RoutingLanded) with(result any) any {
	m.Offsets = result.([]int32)
	return m
}

// GradBufferFreed returns a gradient buffer; its idle event is recorded.
type GradBufferFreed struct{ Buf int }

// GradLanded tells that a layer's gradient, all of it, is on the host, in Slab.
type GradLanded struct {
	Step, Layer, Slab int
	Lane              laneID  // whose slab it is
	IDs               []int32 // of the batch, rising; the rows of the embedding's gradient are theirs
}

// SlabFreed returns a slab.
type SlabFreed struct{ Slab int }

// LossComputed tells that the losses of a pass are complete, in a batch slot.
type LossComputed struct{ Prog, Slot int }

// LossLanded brings the sum of the losses of a pass.
type LossLanded struct {
	Prog, Step int
	Eval       bool
	Sum        float64 // nats over all supervised tokens
	Aux        float64 // to be added to the mean: what balances the experts' load
}

func (m LossLanded) with(result any) any {
	found := result.(losses)
	m.Sum, m.Aux = found.sum, found.aux
	return m
}

// StepUpdated tells that every layer is at version Step.
type StepUpdated struct {
	Step     int
	GradNorm float64 // before clipping
	Skipped  bool
	// AdamStep counts the updates made, NonFinite the steps skipped in a row.
	AdamStep  int64
	NonFinite int
}

// SaveRequested asks for a checkpoint of the state after Step, whose layers come
// with their updates or, AtRest, are all there and stay as they are: then AdamStep
// and NonFinite are LayerUpdated's.
type SaveRequested struct {
	Step            int
	DataPos, Tokens int64
	AtRest          bool
	AdamStep        int64
	NonFinite       int
}

// LayerSaved tells that a layer of a checkpoint is written, though not yet safe on disk.
type LayerSaved struct{ Step, Layer int }

// SaveDone tells that a checkpoint is complete.
type SaveDone struct{ Step int }

// ActivationChecked tells, in a diagnosis, whether a layer's output is finite.
type ActivationChecked struct {
	Prog, Layer, MicroBatch int
	Finite                  bool
}

func (m ActivationChecked) with(result any) any {
	m.Finite = result.(bool)
	return m
}

// StopRequested asks the run to end after the step in progress.
type StopRequested struct{}

// Failed tells the Conductor of the first fault; the run ends.
type Failed struct {
	Actor address
	Err   error
}

// StepReported tells that what there is to say of a step has been said: its
// checkpoint may stand.
type StepReported struct{ Step int }

// StepReport is what the Reporter learns of a step.
type StepReport struct {
	Step, Prog     int
	Loss, GradNorm float64
	LR             float64
	Skipped        bool
	Saved          bool // a checkpoint of the state after it is to be committed
	Tokens         int64
	TotalTokens    int64 // since the start of training
	Supervised     int64
	AttendedPairs  int64                    // (query, key) pairs, in all blocks together
	Elapsed        time.Duration            // since the step before, or an evaluation after it, was complete
	Compute        time.Duration            // of the compute stream, from the step before to the end of the last launch
	Stall          [NumCauses]time.Duration // of Compute, waiting
	H2D, D2H       int64                    // bytes that travelled
	Experts        int64                    // tiles of experts that travelled to the device
	ExpertBytes    int64                    // their bytes, of H2D
}

// EvalReport is what the Reporter learns of an evaluation.
type EvalReport struct {
	Step   int
	Loss   float64 // nats per supervised token
	Tokens int64   // supervised tokens
}
