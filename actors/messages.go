package actors

import (
	"fmt"
	"time"

	"mt/data"
	"mt/layers/schedule"
)

// Cause is the reason why the compute stream was idle.
type Cause uint8

// The causes of a stall. Each names the missing input.
const (
	NoStall         Cause = iota
	StallWeights          // a free weight slot, or the end of the copy into it
	StallUpdate           // the Optimizer's update of a layer
	StallActivation       // an activation slot, or an activation to be copied back from the host
	StallGradBuffer       // a free gradient buffer
	StallData             // the batch, or the end of its copy
	StallCheckpoint       // an update that waited for the Checkpointer to write the layer
	StallRouting          // the number of tokens for each expert, on the host
	StallPassage          // a hidden state, or its gradient, from another lane
	StallDisk             // a disk: an update that waited for the layer's state or gradient, or a tile of weights
	NumCauses
)

func (c Cause) String() string {
	return [...]string{"none", "weights", "update", "activation", "gradient_buffer", "data", "checkpoint", "routing", "passage", "disk"}[c]
}

// The messages follow. A name that ends in Wanted or Requested asks for something; all others report an event. Prog is
// the number of the pass that the message belongs to (Pass.Seq).

// BatchWanted asks the Feeder for the batch of a training step, or of an evaluation pass.
type BatchWanted struct {
	Step int
	Eval bool
}

// BatchReady answers BatchWanted with the batch.
type BatchReady struct {
	Step  int
	Eval  bool
	Batch *data.Batch
}

// PassPlanned brings the next pass to the actors of a lane.
type PassPlanned struct{ Pass *Pass }

// StepClosed reports that the loss of a training step is known. Updates may begin.
type StepClosed struct {
	Step int
	LR   float64
	// Skip: the loss is not finite, so the step updates no layer; only versions advance.
	Skip bool
	// Save: the Conductor has asked for a checkpoint of the state after this step.
	Save bool
}

// LayerUpdated reports that a layer's weights are at Version, counted in steps.
type LayerUpdated struct {
	Layer, Version int
	// Save: the Checkpointer must write the layer at this version.
	Save bool
	// Waited is why the update came late: the Checkpointer or a disk; NoStall: for neither.
	Waited Cause
	// Unchanged: the step was skipped or the layer is frozen, so its bytes are the same as before.
	Unchanged bool
	// AdamStep counts updates. NonFinite counts the steps skipped in a row.
	AdamStep  int64
	NonFinite int
}

// toPrefetchers returns effects that send m to the Prefetchers of lanes 0 to lanes−1.
func (m LayerUpdated) toPrefetchers(lanes int) (out []effect) {
	for lane := range laneID(lanes) {
		out = append(out, send{lane.prefetcher(), m})
	}
	return out
}

// toCheckpointer returns the effect that sends m to the Checkpointer; nil if the layer need not be saved.
func (m LayerUpdated) toCheckpointer() []effect {
	if !m.Save {
		return nil
	}
	return []effect{send{checkpointerID, m}}
}

// LayerFetched reports that the copy of a visit's tile into weight slot Slot is enqueued, not complete. The compute
// stream waits for the slot's event. Cause is the reason why the Prefetcher could not enqueue the copy earlier.
type LayerFetched struct {
	Prog, Visit, Slot int
	Cause             Cause
}

// BatchFetched reports that the copy of a batch into batch slot Slot is enqueued: the token ids and the embedding rows
// of these ids. The compute stream waits for the slot's event. Cause is the reason why the Prefetcher could not enqueue
// the copy earlier.
type BatchFetched struct {
	Prog, Slot int
	Cause      Cause
}

// LaunchPassed tells Compute that the device has completed the oldest launch in progress.
type LaunchPassed struct{}

// SlotFreed returns a weight slot to the Prefetcher. The slot's idle event is recorded, and the next copy waits for it.
type SlotFreed struct{ Slot int }

// BatchSlotFreed returns a batch slot to the Prefetcher. The device has finished with the batch.
type BatchSlotFreed struct{ Slot int }

// ActivationFetched grants activation slot Slot to an activation: number Object in the program's Objects. Filled: a
// copy from the host into the slot is enqueued. Otherwise a launch will write the activation, or another lane has
// copied it into the slot.
type ActivationFetched struct {
	Prog, Object, Slot int
	Filled             bool
}

// ActivationComputed asks the Offloader to spill the activation in a slot: number Object in the program's Objects.
type ActivationComputed struct{ Prog, Object, Slot int }

// ActivationSpilled reports that the spilled copy of an activation is complete on the host.
type ActivationSpilled struct{ Prog, Object int }

// ActivationLeft asks the Offloader to pass the activation in a slot on to another lane.
type ActivationLeft struct{ Prog, Object, Slot int }

// SlotOffered offers activation slot Slot to the Offloader of another lane, which can copy an activation straight into
// it. Object is the activation's number on the lane that offers.
type SlotOffered struct{ Prog, Object, Slot int }

// ActivationPassed tells a Prefetcher that an activation from another lane has arrived. Object is its number on the
// receiving lane. Direct: the copy went into the offered slot; otherwise it went to the host.
type ActivationPassed struct {
	Prog, Object int
	Direct       bool
}

// ActivationSlotFreed returns an activation slot to the Prefetcher.
type ActivationSlotFreed struct{ Slot int }

// GradComputed reports that the gradient of a layer, or of one of its parts, is complete in gradient buffer Buf. Tile
// is the tile of the layer or part. Complete: this is the layer's last part. Partial: a later round of the step adds to
// the gradient.
type GradComputed struct {
	Prog, Step, Layer, Part, Tile, Buf int
	Stage                              schedule.Stage
	Complete, Partial                  bool
}

// GradSummed tells Compute that the gradient of a tile, summed over the rounds so far, is in the layer's slab.
type GradSummed struct{ Tile int }

// GradSumWanted asks the Prefetcher for the sum of a tile's gradient over the rounds so far, in gradient buffer Buf. IDs is
// the number of unique token ids in the batch.
type GradSumWanted struct{ Step, Layer, Part, Tile, Buf, IDs int }

// GradSumFetched tells Compute that the copy of a sum into gradient buffer Buf is enqueued.
type GradSumFetched struct{ Buf int }

// RoutingComputed reports that the launches which assign a layer's tokens to experts are enqueued.
type RoutingComputed struct{ Prog, Layer int }

// RoutingLanded brings a layer's routing to the host. The device has a list of (token, choice) pairs, sorted by expert.
// The message has only each expert's range in this list; the list stays on the device.
type RoutingLanded struct {
	Prog, Layer int
	Offsets     []int32 // expert e, counted from 0, has pairs Offsets[e] to Offsets[e+1]−1
	// Probs is, by expert, the sum of its router probabilities over all tokens. nil: the loss has no balancing part.
	Probs []float32
}

// LoadAgreed brings the experts' load in a pass: for each expert the number of (token, choice) pairs and the sum of
// router probabilities, over all layers and ranks.
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

// GradBufferFreed returns a gradient buffer to Compute. The buffer's idle event is recorded, and the next launch that
// uses the buffer waits for it.
type GradBufferFreed struct{ Buf int }

// GradLanded reports that a layer's complete gradient is on the host, in Slab.
type GradLanded struct {
	Step, Layer, Slab int
	Lane              laneID  // the slab's lane
	IDs               []int32 // unique ids of the batch, ascending: row i of the embedding's gradient belongs to IDs[i]
	// AllIDs has the unique token ids of each rank's batch, by rank. nil: there is one rank.
	AllIDs [][]int32
}

// PartLanded reports that one part of the head's gradient is on the host, in the layer's slab. It exists if the parts are
// on several lanes. Whole is sent when all parts have landed.
type PartLanded struct{ Whole send }

// GradExchanged reports that exchange buffer Buffer holds the gradients of all ranks for this rank's share of a layer.
// AllIDs are the unique token ids of each rank's batch, by rank.
type GradExchanged struct {
	Step, Layer, Buffer int
	AllIDs              [][]int32
}

// ExchangeBufferFreed returns an exchange buffer to the Exchanger.
type ExchangeBufferFreed struct{ Buffer int }

// ShareUpdated reports to the Gatherer that this rank's share of a layer is updated. When the other ranks' shares have
// arrived too, the Gatherer sends the message Updated to the other actors.
type ShareUpdated struct {
	Updated LayerUpdated
}

// GradNotFinite reports a non-finite gradient in a run without global clipping. All ranks see it, and the Optimizer has
// stopped. Finite is the last earlier step that was not skipped.
type GradNotFinite struct{ Step, Layer, Finite int }

// MatrixPrepared reports that a matrix's momentum is updated. Matrix buffer Buffer of the layer's lane holds the matrix
// to orthogonalize.
type MatrixPrepared struct{ Layer, Matrix, Buffer int }

// MatrixOrthogonalized reports that the device has replaced the content of a matrix buffer by the orthogonalized
// matrix.
type MatrixOrthogonalized struct{ Layer, Matrix, Buffer int }

// MatrixApplied reports that the weights of a matrix are updated, and returns the matrix buffer.
type MatrixApplied struct{ Layer, Matrix, Buffer int }

// SlabFreed returns a slab to the Offloader.
type SlabFreed struct{ Slab int }

// LossComputed reports that all losses of a pass are computed, in batch slot Slot.
type LossComputed struct {
	Prog, Slot int
	Load       float64 // Σ counts·probabilities over the experts; 0: the loss has no balancing part
}

// LossLanded brings the sum of a pass's losses to the host.
type LossLanded struct {
	Prog, Step int
	Eval       bool
	Sum        float64   // over all supervised tokens, in nats
	Ahead      float64   // the same of multi-token prediction
	Aux        float64   // the experts' balancing loss, to be added to the mean
	Pairs      *PairSums // nil: the run does not train on pairs
}

func (m LossLanded) withResult(result any) message {
	found := result.(losses)
	m.Sum, m.Ahead, m.Aux, m.Pairs = found.sum, found.ahead, found.aux, found.pairs
	return m
}

// StepUpdated reports that every layer is at version Step. The Optimizer sends it; with several ranks it goes through
// the Gatherer, which sends it on when all tiles are complete.
type StepUpdated struct {
	Step     int
	GradNorm float64 // before clipping
	Skipped  bool
	// AdamStep counts updates. NonFinite counts the steps skipped in a row.
	AdamStep  int64
	NonFinite int
}

// SaveRequested asks the Checkpointer for a checkpoint of the state after Step. Each layer follows in a LayerUpdated.
// AtRest: no update follows, so all layers can be written as they are. AdamStep and NonFinite are set only with AtRest;
// they mean the same as in LayerUpdated.
type SaveRequested struct {
	Step            int
	DataPos, Tokens int64
	AtRest          bool
	AdamStep        int64
	NonFinite       int
}

// GradMeasured hands a slab, whose gradient's sum of squares is known, to the Stager. The Stager writes the gradient to
// a disk. The gradient waits there until the norm over all layers is known.
type GradMeasured struct {
	Layer, Slab int
	Lane        laneID // the slab's lane
}

// GradsWanted asks the Stager for all gradients of the step that wait on disks, because the norm of all layers is
// known.
type GradsWanted struct{}

// StateFetched reports that a layer's state is in a state slot. Round counts how often the Checkpointer has requested
// all states (StatesWanted). The receiver ignores a message of an earlier round, because the Stager then drops the
// states it has read.
//
//   - To the Optimizer it means: the layer can be updated. If its gradient waited on a disk, the gradient is in memory
//     too.
//   - To the Checkpointer it means: the layer can be saved as it is.
type StateFetched struct{ Layer, Round int }

// StateUpdated returns the state slot of an updated layer to the Stager, which must first write the state to disk. If
// the layer's tile is on a disk too, the Stager sends the message Updated to the Prefetchers after the tile is written.
type StateUpdated struct {
	Updated LayerUpdated
}

// StateFlushed tells the Checkpointer that the state of a layer is written to its disk, and that the state slot still
// holds it. The Stager sends the message only if checkpoints hard-link the files of states.
type StateFlushed struct{ Layer int }

// StatesWanted asks for all states that are on disks, so that the Checkpointer can save them. The Conductor sends it to
// the Optimizer. When the Optimizer has no update in progress, it sends StatesWanted to the Stager.
type StatesWanted struct{}

// LayerSaved tells the Optimizer and the Stager that a layer of a checkpoint is written (not yet synced). The layer may
// then be updated again, and its state slot may be freed.
type LayerSaved struct{ Step, Layer int }

// SaveDone reports that a checkpoint is complete.
type SaveDone struct{ Step int }

// ActivationChecked reports, in a diagnosis, whether a layer's output for one micro-batch is finite.
type ActivationChecked struct {
	Prog, Layer, MicroBatch int
	Finite                  bool
}

func (m ActivationChecked) withResult(result any) message {
	m.Finite = result.(bool)
	return m
}

// StopRequested asks the run to end after the step in progress. Several ranks end after the pass at whose end they
// agree to stop. It may come more than once.
type StopRequested struct{}

// AbortRequested asks the run to end without the step in progress.
type AbortRequested struct{}

// StepAbortRequested asks the Optimizer to drop a closed step, if it has updated no layer yet.
type StepAbortRequested struct{ Step int }

// StepDropped reports that a step has updated no layer and will update none.
type StepDropped struct{ Step int }

// Failed tells the Conductor that something has failed. The first failure ends the run and is its error.
type Failed struct {
	Actor address
	Err   error
}

// StepReported tells the Checkpointer that the caller has received a step's report. The step's checkpoint may now be
// committed.
type StepReported struct{ Step int }

// StepReport is the report of a step. The Conductor makes it; the Reporter fills in the fields from Elapsed on.
type StepReport struct {
	Step, Prog     int
	Loss, GradNorm float64
	Ahead          *float64 // mean loss of multi-token prediction, unweighted and not part of Loss; nil: it is not trained
	LR             float64
	Skipped        bool
	Saved          bool // a checkpoint of the state after this step will be committed
	Tokens         int64
	TotalTokens    int64 // since the start of training
	Supervised     int64
	Pairs          *PairSums                // of the step; nil: the run does not train on pairs
	AttendedPairs  int64                    // attended (query, key) pairs, summed over all blocks
	AttendedAgain  int64                    // the pairs of blocks whose attention the backward recomputes
	Elapsed        time.Duration            // since the previous report of a step or an evaluation
	Compute        time.Duration            // compute stream: from the end of the previous step to the end of this one
	Stall          [NumCauses]time.Duration // the part of Compute spent waiting, by cause; mean of all lanes
	H2D, D2H       int64                    // bytes copied between host and devices since the previous report
	Peer           int64                    // bytes copied between devices, same interval
	Sent           int64                    // bytes of gradients and weights sent to other ranks, same interval
	DiskRead       int64                    // bytes of states, gradients and weights read from disks, same interval
	DiskWritten    int64                    // bytes of states, gradients and weights written to disks, same interval
	DiskBusy       time.Duration            // time with a disk read or write in progress, same interval; 0 in predictions
	Experts        int64                    // experts' tiles copied to the device
	ExpertBytes    int64                    // bytes of those tiles, included in H2D
}

// EvalReport is the report of an evaluation.
type EvalReport struct {
	Step   int
	Loss   float64   // nats per supervised token, or the mean loss of the pairs
	Ahead  *float64  // mean loss of multi-token prediction; nil: it is not trained
	Tokens int64     // supervised tokens
	Pairs  *PairSums // nil: the run does not train on pairs
}

// Pass is one pass of a batch over the layers: its program and its place in the run.
type Pass struct {
	*schedule.Program
	Seq     int // counted from 0
	Step    int // its training step; for an evaluation the step before it
	Eval    bool
	Check   bool // diagnosis: check every output for non-finite values
	Version int  // the version of the weights that it needs, counted in steps
	Batch   *data.Batch
	Waited  Cause // the cause of the delay before it could be planned
	hooks   []passHook
}

// passHook is a piece of Compute that only some passes have, such as a diagnosis. It adds effects after each launch.
type passHook interface {
	// enqueued returns the effects that follow launch e of visit v.
	enqueued(v schedule.Visit, e enqueue) []effect
}

// inputStall returns the cause to count if a launch waits for its input. In the forward the input may come from another
// lane. In the backward it always comes from the host, even if another lane has computed it.
func (p *Pass) inputStall(l schedule.Launch) Cause {
	if p.Objects[l.In].From >= 0 && p.Visits[l.Visit].Phase != schedule.Backward {
		return StallPassage
	}
	return StallActivation
}

// gradStall returns the cause to count if a launch waits for the gradient of its output, which may come from another
// lane.
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
