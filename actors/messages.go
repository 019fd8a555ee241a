package actors

import (
	"fmt"
	"time"

	"mt/data"
	"mt/layers/schedule"
)

// Cause is why the compute stream stood still.
type Cause uint8

// The causes of a stall: what was missing.
const (
	NoStall         Cause = iota
	StallWeights          // a free weight slot, or the end of a copy into it
	StallUpdate           // the Optimizer's update of a layer
	StallActivation       // an activation slot, or an activation that comes back from the host
	StallGradBuffer       // a free gradient buffer
	StallData             // the batch, or the end of its copy
	StallCheckpoint       // an update that had to wait until the layer was written to disk
	StallRouting          // the numbers of the experts' tokens, on the host
	StallPassage          // a hidden state, or its gradient, that another lane has to make and pass on
	StallDisk             // an update that had to wait until the layer's state or gradient was read from a disk, or weights that were read from one
	NumCauses
)

func (c Cause) String() string {
	return [...]string{"none", "weights", "update", "activation", "gradient_buffer", "data", "checkpoint", "routing", "passage", "disk"}[c]
}

// The messages follow. All but those that ask (…Wanted, …Requested) tell what has
// happened. Prog is the number of the pass that a message belongs to (Pass.Seq).

// BatchWanted asks the Feeder for the batch of a training step, or of an
// evaluation pass.
type BatchWanted struct {
	Step int
	Eval bool
}

// BatchReady brings the batch that a BatchWanted asked for.
type BatchReady struct {
	Step  int
	Eval  bool
	Batch *data.Batch
}

// PassPlanned hands the next pass to the actors of a lane.
type PassPlanned struct{ Pass *Pass }

// StepClosed tells that the loss of a training step is known, so that updates may
// begin.
type StepClosed struct {
	Step int
	LR   float64
	// Skip: the loss is not finite, so no layer is updated.
	Skip bool
	// Save: the state after this step is written to disk.
	Save bool
}

// LayerUpdated tells that a layer's weights are at Version, counted in steps taken.
type LayerUpdated struct {
	Layer, Version int
	// Save: the Checkpointer writes the layer at this version.
	Save bool
	// Waited is what the update had to wait for: the Checkpointer or a disk.
	Waited Cause
	// Unchanged: the step was skipped or the layer is frozen, and it is what it was.
	Unchanged bool
	// AdamStep counts the updates made, NonFinite the steps skipped in a row.
	AdamStep  int64
	NonFinite int
}

// toPrefetchers tells it to the Prefetchers of so many lanes.
func (m LayerUpdated) toPrefetchers(lanes int) (out []effect) {
	for lane := range laneID(lanes) {
		out = append(out, send{lane.prefetcher(), m})
	}
	return out
}

// toCheckpointer tells it to the Checkpointer, if the layer is to be saved.
func (m LayerUpdated) toCheckpointer() []effect {
	if !m.Save {
		return nil
	}
	return []effect{send{checkpointerID, m}}
}

// LayerFetched tells that the tile of a visit is on its way into Slot: the compute
// stream waits for the slot's event.
type LayerFetched struct {
	Prog, Visit, Slot int
	Cause             Cause
}

// BatchFetched tells that a batch is on its way into batch slot Slot: its ids, and
// the rows of the embedding that they name. The compute stream waits for the slot's
// event.
type BatchFetched struct {
	Prog, Slot int
	Cause      Cause
}

// LaunchPassed tells Compute that the device has done the first of the launches that are enqueued.
type LaunchPassed struct{}

// SlotFreed returns a weight slot; its idle event is recorded.
type SlotFreed struct{ Slot int }

// BatchSlotFreed returns a batch slot.
type BatchSlotFreed struct{ Slot int }

// ActivationFetched grants an activation slot to an object of the program. Filled:
// the object is being copied into it from the host; else a launch writes it, or it has
// come from another lane.
type ActivationFetched struct {
	Prog, Object, Slot int
	Filled             bool
}

// ActivationComputed hands an activation to the Offloader, to be spilled.
type ActivationComputed struct{ Prog, Object, Slot int }

// ActivationSpilled tells that an activation is on the host.
type ActivationSpilled struct{ Prog, Object int }

// ActivationLeft hands an activation to the Offloader, to be passed on to another lane.
type ActivationLeft struct{ Prog, Object, Slot int }

// SlotOffered tells the Offloader of a lane that the lane which an activation is passed on to, and
// on which it is Object, has activation slot Slot free for it: it can be copied straight there.
type SlotOffered struct{ Prog, Object, Slot int }

// ActivationPassed tells the Prefetcher of a lane that an activation from another lane, which
// is Object there, has been passed on: Direct, into the slot that was offered for it, else to the
// host.
type ActivationPassed struct {
	Prog, Object int
	Direct       bool
}

// ActivationSlotFreed returns an activation slot.
type ActivationSlotFreed struct{ Slot int }

// GradComputed tells that the gradient of a layer, or of one part of it, is complete
// in gradient buffer Buf; Tile is its tile. Complete: it is the layer's last one.
type GradComputed struct {
	Prog, Step, Layer, Part, Tile, Buf int
	Complete                           bool
}

// RoutingComputed tells that the launches are enqueued which decide, on the device,
// which tokens go to which experts of a layer.
type RoutingComputed struct{ Prog, Layer int }

// RoutingLanded brings the routing of a layer to the host: where each expert's pairs
// (token, choice) begin and end in the list of all pairs, which stays on the device.
type RoutingLanded struct {
	Prog, Layer int
	Offsets     []int32 // expert e, counted from 0, has pairs Offsets[e] to Offsets[e+1]−1
	// Probs is, by expert, the sum of its probabilities over all tokens; nil where the loss has
	// no part that balances the load.
	Probs []float32
}

// LoadAgreed brings what the experts of all layers have to bear in a pass, on all ranks together.
type LoadAgreed struct {
	Prog int
	Load expertLoad
}

func (m LoadAgreed) withResult(result any) message {
	m.Load = result.(expertLoad)
	return m
}

func (m RoutingLanded) withResult(result any) message {
	found := result.(routed)
	m.Offsets, m.Probs = found.offsets, found.probs
	return m
}

// GradBufferFreed returns a gradient buffer; its idle event is recorded.
type GradBufferFreed struct{ Buf int }

// GradLanded tells that a layer's gradient, all of it, is on the host, in Slab.
type GradLanded struct {
	Step, Layer, Slab int
	Lane              laneID  // whose slab it is
	IDs               []int32 // of the batch, rising: row i of the embedding's gradient is that of IDs[i]
	// AllIDs are the IDs of all ranks, by rank; nil: this one is alone.
	AllIDs [][]int32
}

// GradExchanged tells that all ranks' gradients of this rank's share of a layer are in exchange
// buffer Buffer. AllIDs are those of GradLanded.
type GradExchanged struct {
	Step, Layer, Buffer int
	AllIDs              [][]int32
}

// ExchangeBufferFreed returns an exchange buffer.
type ExchangeBufferFreed struct{ Buffer int }

// ShareUpdated tells that this rank's share of a layer is at a version; when the tile is
// complete, Updated is passed on.
type ShareUpdated struct {
	Updated LayerUpdated
}

// GradNotFinite tells that a step without clipping has a gradient that is not finite, on all
// ranks, and that the Optimizer has come to rest. Finite is the last step before it that was
// not skipped.
type GradNotFinite struct{ Step, Layer, Finite int }

// MatrixPrepared tells that the momentum of a matrix of a layer is moved, and that what the device is
// to make of it is in matrix buffer Buffer of the layer's lane.
type MatrixPrepared struct{ Layer, Matrix, Buffer int }

// MatrixOrthogonalized tells that the device has made of it what the weights are moved by, in the same
// buffer.
type MatrixOrthogonalized struct{ Layer, Matrix, Buffer int }

// MatrixApplied returns a matrix buffer: the weights of its matrix are moved.
type MatrixApplied struct{ Layer, Matrix, Buffer int }

// SlabFreed returns a slab.
type SlabFreed struct{ Slab int }

// LossComputed tells that the losses of a pass are complete, in a batch slot.
type LossComputed struct {
	Prog, Slot int
	Load       float64 // Σ counts·probabilities over the experts; 0 where no loss balances their load
}

// LossLanded brings the sum of the losses of a pass.
type LossLanded struct {
	Prog, Step int
	Eval       bool
	Sum        float64   // nats over all supervised tokens
	Aux        float64   // the loss that balances the experts' load, to be added to the mean
	Pairs      *PairSums // nil, but in a run on pairs
}

func (m LossLanded) withResult(result any) message {
	found := result.(losses)
	m.Sum, m.Aux, m.Pairs = found.sum, found.aux, found.pairs
	return m
}

// StepUpdated tells that every layer is at version Step. Of several ranks, the Gatherer passes
// it on when all tiles are complete.
type StepUpdated struct {
	Step     int
	GradNorm float64 // before clipping
	Skipped  bool
	// AdamStep counts the updates made, NonFinite the steps skipped in a row.
	AdamStep  int64
	NonFinite int
}

// SaveRequested asks for a checkpoint of the state after Step. Its layers come one by
// one, with LayerUpdated. AtRest: no update follows, and all layers can be written as
// they are; only then AdamStep and NonFinite are set, which mean what they mean in
// LayerUpdated.
type SaveRequested struct {
	Step            int
	DataPos, Tokens int64
	AtRest          bool
	AdamStep        int64
	NonFinite       int
}

// GradMeasured hands to the Stager a slab with a gradient that has been measured and that waits for the norm on a disk.
type GradMeasured struct {
	Layer, Slab int
	Lane        laneID // whose slab it is
}

// GradsWanted asks the Stager for all gradients of the step that wait on disks: the norm is known.
type GradsWanted struct{}

// StateFetched tells that the state of a layer is in a state slot: the Optimizer, that it can update the
// layer, whose gradient is there too if it has waited on a disk; the Checkpointer, that it can save it as it is. Round counts how often all layers were to be
// shown to the Checkpointer: what was told in an earlier round holds no more.
type StateFetched struct{ Layer, Round int }

// StateUpdated returns a state slot whose layer is updated: it is to be written to the disk. Where its
// tile is written too, Updated is passed on when that is done.
type StateUpdated struct {
	Updated LayerUpdated
}

// StateFlushed tells, where checkpoints link the files that states are written to, that the state of a layer that is to be
// saved is written, and still in its state slot.
type StateFlushed struct{ Layer int }

// StatesWanted asks for the states of all layers that are away, for the Checkpointer. The Conductor
// asks the Optimizer, who asks the Stager behind all its updates.
type StatesWanted struct{}

// LayerSaved tells that a layer of a checkpoint is written, though not yet safe on disk.
type LayerSaved struct{ Step, Layer int }

// SaveDone tells that a checkpoint is complete.
type SaveDone struct{ Step int }

// ActivationChecked tells, in a diagnosis, whether a layer's output for one
// micro-batch is finite.
type ActivationChecked struct {
	Prog, Layer, MicroBatch int
	Finite                  bool
}

func (m ActivationChecked) withResult(result any) message {
	m.Finite = result.(bool)
	return m
}

// StopRequested asks the run to end after the step in progress; of several ranks, after the
// pass at whose end they agree to. It may come more than once.
type StopRequested struct{}

// AbortRequested asks the run to end without the step in progress.
type AbortRequested struct{}

// StepAbortRequested asks the Optimizer to drop a step that is closed.
type StepAbortRequested struct{ Step int }

// StepDropped tells that no layer was updated by a step, and none will be.
type StepDropped struct{ Step int }

// Failed tells the Conductor of the first fault; the run ends.
type Failed struct {
	Actor address
	Err   error
}

// StepReported tells that a step has been reported to the caller, so that its
// checkpoint may be committed.
type StepReported struct{ Step int }

// StepReport is what the Reporter reports of a step. The Conductor sends it without
// the fields from Elapsed on, which the Reporter adds.
type StepReport struct {
	Step, Prog     int
	Loss, GradNorm float64
	LR             float64
	Skipped        bool
	Saved          bool // a checkpoint of the state after it is to be committed
	Tokens         int64
	TotalTokens    int64 // since the start of training
	Supervised     int64
	Pairs          *PairSums                // of the step; nil, but in a run on pairs
	AttendedPairs  int64                    // (query, key) pairs, in all blocks together
	AttendedAgain  int64                    // those of them in blocks whose attention the backward computes again
	Elapsed        time.Duration            // since the report before, of a step or an evaluation
	Compute        time.Duration            // of the compute stream, from the end of the step before to the end of this one
	Stall          [NumCauses]time.Duration // how much of Compute went by waiting, by cause; the mean of all lanes
	H2D, D2H       int64                    // bytes copied between host and devices since the report before
	Peer           int64                    // bytes copied from one device to another since then
	Sent           int64                    // bytes of gradients and weights sent to other ranks since then
	DiskRead       int64                    // bytes of states, gradients and weights read from disks since then
	DiskWritten    int64                    // bytes of states, gradients and weights written to disks since then
	DiskBusy       time.Duration            // since then, in which something was read from or written to disks; of predictions 0
	Experts        int64                    // tiles of experts that were copied to the device
	ExpertBytes    int64                    // the bytes of those tiles, which H2D contains
}

// EvalReport is what the Reporter reports of an evaluation.
type EvalReport struct {
	Step   int
	Loss   float64   // nats per supervised token, or the mean of pairs' losses
	Tokens int64     // supervised tokens
	Pairs  *PairSums // nil, but in a run on pairs
}

// Pass is one pass over the layers with the batch that goes through them: the
// program it follows, and its place in the run.
type Pass struct {
	*schedule.Program
	Seq     int // its number: passes are counted from 0
	Step    int // the training step it belongs to; for an evaluation the step it follows
	Eval    bool
	Check   bool // diagnosis: look for non-finite values after every launch
	Version int  // the version of the weights that it needs, counted in steps taken
	Batch   *data.Batch
	Waited  Cause // what the Conductor waited for before it could plan it
	hooks   []passHook
}

// passHook is what some passes do beside launches.
type passHook interface {
	// enqueued follows a launch of a visit.
	enqueued(v schedule.Visit, e enqueue) []effect
}

// inputStall is why the input of a launch can be late: it comes from another lane or, as always
// in the backward, from the host.
func (p *Pass) inputStall(l schedule.Launch) Cause {
	if p.Objects[l.In].From >= 0 && p.Visits[l.Visit].Phase != schedule.Backward {
		return StallPassage
	}
	return StallActivation
}

// gradStall is why the gradient that a launch reads can be late.
func (p *Pass) gradStall(l schedule.Launch) Cause {
	if p.Objects[l.Grad].From >= 0 {
		return StallPassage
	}
	return StallActivation
}

func (p *Pass) String() string {
	what := fmt.Sprintf("pass %d step %d eval %t", p.Seq, p.Step, p.Eval)
	if p.Program == nil {
		return what
	}
	return fmt.Sprintf("%s visits %d launches %d", what, len(p.Visits), len(p.Launches))
}
