package actors

import (
	"sync/atomic"
	"time"

	"mt/schedule"
)

// run is one run of the pipeline: its lanes, and what exists once.
type run struct {
	*shared
	lanes  []*lane
	saving atomic.Bool // a checkpoint is open

	// When and what the Reporter reported last; used by it alone.
	lastStep         time.Time
	lastH2D, lastD2H int64
}

// Run trains (or evaluates) as o says and returns when everything has come to rest: the
// device is idle, goroutines have ended, buffers are given back. The first fault anywhere
// ends the run and is its error; checkpoints that were complete by then remain.
func Run(o Options) (err error) {
	once, err := newShared(&o)
	if err != nil {
		return err
	}
	defer func() {
		if late := once.close(); err == nil {
			err = late
		}
	}()
	only, err := newLane(once, 0, o.Device)
	if err != nil {
		return err
	}
	once.hub = newHub()
	r := &run{shared: once, lanes: []*lane{only}, lastStep: time.Now()}
	defer func() {
		r.hub.close()
		for _, l := range r.lanes {
			if drained := l.drain(); err == nil {
				err = drained
			}
		}
		if r.saving.Load() {
			o.Saver.Abort()
		}
	}()
	if err := r.spawn(); err != nil {
		return err
	}
	r.hub.tell(conductorID, begin{})
	for stop := o.Stop; ; {
		select {
		case err := <-r.hub.ended:
			return err
		case <-stop:
			r.hub.tell(conductorID, StopRequested{})
			stop = nil
		}
	}
}

// spawn starts the actors.
func (r *run) spawn() error {
	o := r.o
	n := len(o.Plan.Layouts)
	var sources [][]int
	for _, t := range r.tiles {
		sources = append(sources, t.Sources())
	}
	var into []int
	for _, g := range r.gradients {
		into = append(into, g.In)
	}
	var slots [schedule.NumClasses]int
	for class := range slots {
		slots[class], _ = o.Plan.Slots(schedule.Class(class))
	}
	conductor := newConductorCore(o.Schedule, o.Start, len(r.lanes), o.Plan.Depths.BatchesAhead, r.schedule)
	conductor.pairs = o.Plan.Spec.Config.AttendedPairs
	processes := []*process{
		{id: reporterID, core: reporterCore{}, exec: r.execReporter},
		{id: checkpointerID, core: newCheckpointerCore(n, o.Start.Step), exec: r.execCheckpointer},
		{id: optimizerID, core: newOptimizerCore(into, len(r.lanes), o.Start, o.MaxGradNorm), exec: r.execOptimizer},
	}
	for _, l := range r.lanes {
		processes = append(processes,
			&process{id: l.index.offloader(), core: newOffloaderCore(l.index, o.MaxGradNorm > 0, o.Plan.Depths), exec: l.execOffloader},
			&process{id: l.index.compute(), core: newComputeCore(l.index, o.Plan.Depths), exec: l.execCompute},
			&process{id: l.index.prefetcher(), core: newPrefetcherCore(l.index, n, o.Start.Step, sources, slots, o.batchSlots(), o.Plan.Depths), exec: l.execPrefetcher})
	}
	processes = append(processes,
		&process{id: feederID, core: &feederCore{}, exec: r.execFeeder},
		&process{id: conductorID, core: conductor, exec: r.execConductor})
	for _, s := range processes {
		if err := r.hub.spawn(s); err != nil {
			return err
		}
	}
	return nil
}
