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

// State is the state of training after Step steps. A run starts from a State, and a checkpoint contains one.
type State struct {
	Step      int
	AdamStep  int64 // updates made
	NonFinite int   // steps skipped in a row
	Tokens    int64 // consumed by all steps
}

// Saver writes checkpoints. At most one save is in progress. Calls come from several goroutines,
// but never two at once. An error ends the run.
type Saver interface {
	// Open begins a save of the state after a step.
	Open(step int) error
	// Layer writes layer i. l must not be used after Layer has returned.
	Layer(i int, l *host.LayerState) error
	// Commit ends the save after all layers are written, and makes the checkpoint valid. dataPos is
	// the position in the training data at which training continues.
	Commit(s State, dataPos int64) error
	// Abort ends a save without a commit.
	Abort()
}

// Options configure a run. The caller owns Devices and Home.
type Options struct {
	Devices []device.Device // by lane; all alike
	Home    host.Home       // the layers in host memory
	Pool    *parallel.Pool  // the host's cores for norms and for filling arenas
	// Plan has the model's layouts and layers.Spec, and the memory for each purpose: depths and batch limits.
	Plan     *plan.Run
	Schedule Schedule
	Start    State
	// Optimizer makes the updates. nil: the run makes none.
	Optimizer optim.Optimizer
	// Matrices is the optimizer of whole matrices (Muon), if the plan has NSSteps > 0. Optimizer is then equal to
	// Matrices or wraps it. nil: no matrices.
	Matrices *optim.Muon
	// ThroughHost sends activations between lanes through the host even if their devices reach each other.
	ThroughHost bool
	// MaxGradNorm bounds the norm of all gradients together or, with LayerNorms, of each layer's gradient. 0: no
	// clipping. Plan.Clip is set for global clipping.
	MaxGradNorm float64
	LayerNorms  bool
	// Batch reads and packs the batch of training step `step` or, with eval, of evaluation pass
	// `step`. Both count from 1.
	Batch func(step int, eval bool) (*data.Batch, error)
	// Ending, which may be nil, is called once when the run ends. The run then waits for calls of Batch that are still
	// in progress, so Ending must make them return.
	Ending func()
	// Preferences are set if and only if Plan has a preference loss.
	Preferences *Preferences
	Saver       Saver // nil with Schedule.NoSave
	// LinkStates: the Saver hard-links the file of a layer's state instead of copying it. So a layer is saved only
	// after its state is written to that file, and the file is not written again before Saver.Layer returns. Requires
	// one rank.
	LinkStates bool
	// OnStep and OnEval, which may be nil, receive the reports in order, never two at once. A step's OnStep returns
	// before its checkpoint is committed.
	OnStep func(StepReport)
	OnEval func(EvalReport)
	// extraBatchSlots is the number of batch slots beyond the first; only tests set it. Extra slots make a run no
	// faster: the embedding rows of the next batch wait for the update from this batch's gradient. Tests check that
	// extra slots change no bit.
	extraBatchSlots int
	// predicted is set by Predict. Such a run computes nothing and touches no memory; it only
	// simulates time.
	predicted *prediction
	// Wrap, unless nil, wraps the device of a predicted run.
	Wrap func(device.Device) device.Device
	// Timeline records the run for traces and viewers. nil: nothing is recorded.
	Timeline *timeline.Recorder
	// Stop, when closed, ends the run after the step in progress. With several ranks, one Stop ends all ranks after the
	// same step.
	Stop <-chan struct{}
	// AbortStep, when closed, ends the run without the step in progress, unless a layer of the step is already updated.
	// The run's error is then a *StepAbortedError. A run with several ranks ignores AbortStep.
	AbortStep <-chan struct{}
	// LeavePinned, which may be nil, is called with the run's error when the device is idle. If it returns true, the
	// process is about to end, and devices leave host memory pinned (cuda's LeavePinned).
	LeavePinned func(err error) bool
	// World is the group of ranks that train together, this one included. nil: one rank.
	//
	//   - All ranks make the same calls of Run.
	//   - Home has whole tiles, and this rank's share of everything else (Plan.Shares).
	//   - Batches are batches of ranks (data.NewRankBatch).
	//   - The run makes the communicators "gradients", "weights", "agreement", "norm" and "balance".
	//   - If the run ends well, or with a NonFiniteError, no operation is in progress on them.
	//   - After any other error the caller must call World.Abort. Operations in progress keep their memory.
	World cluster.World
	// Stopping, which may be nil, is called once after several ranks have agreed to stop.
	Stopping func()
}

func (o *Options) batchSlots() int { return 1 + o.extraBatchSlots }
