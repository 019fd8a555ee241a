package actors

import (
	"mt/base/cluster"
	"mt/base/parallel"
	"mt/base/timeline"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/plan"
)

// State is where training stands after Step steps: where a run starts, or what a
// checkpoint has.
type State struct {
	Step      int
	AdamStep  int64 // updates made
	NonFinite int   // steps skipped in a row
	Tokens    int64 // consumed by all steps
}

// Saver writes checkpoints; one save is open at a time. Calls come from several
// goroutines, but never two at once. An error ends the run.
type Saver interface {
	// Open begins a save of the state after a step.
	Open(step int) error
	// Layer writes layer i, which is lent as l until Layer returns.
	Layer(i int, l *host.LayerState) error
	// Commit ends the save when all layers are written. dataPos is the data position
	// after the step, as Schedule.DataPos gives it.
	Commit(s State, dataPos int64) error
	// Abort ends a save that will not be committed.
	Abort()
}

// Options are all a run needs. The caller owns Devices and Home.
type Options struct {
	Devices []device.Device // by lane; alike
	Home    host.Home       // of the layers: what is fetched, updated and saved
	Pool    *parallel.Pool  // the host's cores, on which norms are computed and arenas filled
	// Plan says what of the model there is (layouts, layers.Spec), and how much memory
	// each purpose gets (depths, limits of batches).
	Plan     *plan.Run
	Schedule Schedule
	Start    State
	// Optimizer makes the updates; nil where there are none.
	Optimizer optim.Optimizer
	// Matrices, if the plan has NSSteps, is what moves matrices whole; Optimizer then is the same or made
	// from it. nil: nothing does.
	Matrices *optim.Muon
	// ThroughHost: what passes from lane to lane goes through the host even where devices reach
	// each other.
	ThroughHost bool
	// MaxGradNorm bounds the norm of all gradients together or, with LayerNorms, that of each layer's by
	// itself; 0: nothing is clipped. Plan.Clip says that the former is so.
	MaxGradNorm float64
	LayerNorms  bool
	// Batch packs the batch of a training step (1-based) or, with eval, of an
	// evaluation pass (1-based).
	Batch func(step int, eval bool) (*data.Batch, error)
	// Ending, which may be nil, is called once when the run ends, before it waits for calls of Batch that are under way: these
	// must then return.
	Ending func()
	// Preferences are given where Plan has a preference loss, and nil elsewhere.
	Preferences *Preferences
	Saver       Saver // nil with Schedule.NoSave
	// LinkStates: of a layer whose state is on a disk the Saver links the file that it is written to. So it is saved only when
	// that is done, and is not written again before Saver.Layer has returned. There is one rank then.
	LinkStates bool
	// OnStep and OnEval, which may be nil, get the measurements in order, never two
	// calls at once. OnStep has returned for a step before its checkpoint is committed.
	OnStep func(StepReport)
	OnEval func(EvalReport)
	// moreBatches is how many batch slots there are beyond the one that a run needs.
	// More gain nothing, because the rows of the next batch wait for the update that this
	// batch's gradient makes; tests show that they change nothing either.
	extraBatchSlots int
	// predicted is set by Predict: nothing is computed, and no memory touched.
	predicted *prediction
	// Wrap, unless nil, is put around the device of a predicted run.
	Wrap func(device.Device) device.Device
	// Timeline is told what happens when; nil: nobody wants to know.
	Timeline *timeline.Recorder
	// Stop, when closed, ends the run after the step in progress. Of several ranks all end, after
	// the same step, whichever was asked to.
	Stop <-chan struct{}
	// AbortStep, when closed, ends the run without the step in progress, if none of its layers is updated yet: the error
	// is a *StepAbortedError. Several ranks do not heed it.
	AbortStep <-chan struct{}
	// LeavePinned, which may be nil, is called with the error of the run when everything has come to rest. Where it returns true
	// the process is about to end, and devices leave host memory pinned (cuda's LeavePinned).
	LeavePinned func(err error) bool
	// World is the ranks that train together, of which this is one; nil: it trains alone. They make
	// the same calls of Run. Home then has whole tiles and of the rest the shares that Plan names,
	// and batches are those of ranks (data.NewRankBatch). The run makes the communicators "gradients", "weights", "agreement",
	// "norm" and "balance"; when it ends well, or by a NonFiniteError, nothing is under way on them. After
	// another error World.Abort is to be called: what is still under way keeps its memory.
	World cluster.World
	// Stopping, which may be nil, is called once when several ranks have agreed to stop.
	Stopping func()
}

func (o *Options) batchSlots() int { return 1 + o.extraBatchSlots }
