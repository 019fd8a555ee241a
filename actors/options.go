package actors

import (
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/internal/parallel"
	"mt/plan"
)

// State is where a run starts: after Step steps.
type State struct {
	Step      int
	AdamStep  int64 // updates made
	NonFinite int   // steps skipped in a row
	Tokens    int64 // consumed by all steps
}

// Saver writes checkpoints; one save is open at a time. All calls come from one
// goroutine at a time.
type Saver interface {
	Open(step int) error
	Layer(i int, l *host.LayerState) error // l is the layer until Layer returns
	Commit(s State, dataPos int64) error
	Abort()
}

// Options are all a run needs. The caller owns Device and Home.
type Options struct {
	Device device.Device
	Home   host.Home      // of the layers: what is fetched, updated and saved
	Pool   *parallel.Pool // the host's cores: norms and arenas
	// Plan is the memory plan: layouts, templates, depths, limits of batches.
	Plan     *plan.Run
	Schedule Schedule
	Start    State
	// Optimizer makes the updates; nil where there are none.
	Optimizer   optim.Optimizer
	MaxGradNorm float64 // 0: no clipping; as Plan.Clip says
	// Batch packs the batch of a training step (1-based) or, with eval, of an
	// evaluation pass (1-based).
	Batch func(step int, eval bool) (*data.Batch, error)
	Saver Saver // nil with Schedule.NoSave
	// OnStep and OnEval get the measurements, in order, on one goroutine. OnStep
	// has returned for a step before its checkpoint is committed.
	OnStep func(StepReport)
	OnEval func(EvalReport)
	// moreBatches is how many batches are on the device beside one; none is gained by
	// more, as the next batch's embedding waits for the update that this one's gradient
	// makes.
	moreBatches int
	// Stop, when closed, ends the run after the step in progress.
	Stop <-chan struct{}
}

func (o *Options) batchSlots() int { return 1 + o.moreBatches }
