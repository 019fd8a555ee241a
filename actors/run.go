package actors

import (
	"sync/atomic"
	"time"

	"mt/schedule"
)

// run is one run of the pipeline: the resources, the actors and what their
// effects share.
type run struct {
	o      *Options
	res    *resources
	hub    *hub
	saving atomic.Bool // a checkpoint is open

	// Of the Reporter's goroutine.
	lastStep         time.Time
	lastH2D, lastD2H int64
}

// Run trains (or evaluates) as o says and returns when everything has come to
// rest: the device idle, goroutines ended, buffers given back. A fault anywhere
// ends the run with its error; the last checkpoint stands.
func Run(o Options) (err error) {
	res, err := newResources(&o)
	if err != nil {
		return err
	}
	defer func() {
		if late := res.close(); err == nil {
			err = late
		}
	}()
	r := &run{o: &o, res: res, hub: newHub(), lastStep: time.Now()}
	defer func() {
		r.hub.close()
		if drained := res.drain(); err == nil {
			err = drained
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
	tied := o.Plan.Layouts[n-1].Tied
	var sources [][]int
	for _, t := range r.res.tiles {
		sources = append(sources, t.Sources())
	}
	var slots [schedule.NumClasses]int
	for class := range slots {
		slots[class], _ = o.Plan.Slots(schedule.Class(class))
	}
	conductor := newConductorCore(o.Schedule, o.Start, o.Plan.Depths.BatchesAhead, o.Plan.Schedule())
	conductor.pairs = o.Plan.Spec.Config.AttendedPairs
	shells := []*shell{
		{id: reporterID, core: reporterCore{}, exec: r.execReporter},
		{id: checkpointerID, core: newCheckpointerCore(n, o.Start.Step), exec: r.execCheckpointer},
		{id: optimizerID, core: newOptimizerCore(n, o.Start, o.MaxGradNorm, tied), exec: r.execOptimizer},
		{id: offloaderID, core: newOffloaderCore(o.MaxGradNorm > 0, o.Plan.Depths), exec: r.execOffloader},
		{id: computeID, core: newComputeCore(o.Plan.Depths), exec: r.execCompute},
		{id: prefetcherID, core: newPrefetcherCore(n, o.Start.Step, sources, slots, o.batchSlots(), o.Plan.Depths), exec: r.execPrefetcher},
		{id: feederID, core: &feederCore{}, exec: r.execFeeder},
		{id: conductorID, core: conductor, exec: r.execConductor},
	}
	for _, s := range shells {
		if err := r.hub.spawn(s); err != nil {
			return err
		}
	}
	return nil
}
