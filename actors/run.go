package actors

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"mt/device"
	"mt/schedule"
)

// run is one run of the pipeline: its lanes, and what exists once.
type run struct {
	*shared
	saving atomic.Bool // a checkpoint is open

	// When and what the Reporter reported last; used by it alone.
	lastStep  time.Duration // as the hub counts it
	lastMoved linkBytes
	lastBusy  time.Duration // of disks
}

// Run trains (or evaluates) as o says and returns when everything has come to rest: the
// device is idle, goroutines have ended, buffers are given back. The first fault anywhere
// ends the run and is its error; checkpoints that were complete by then remain.
func Run(o Options) (err error) {
	return execute(o, newProtoCarrier(), func(r *run) error {
		for stop, giveUp := o.Stop, o.GiveUp; ; {
			select {
			case err := <-r.hub.ended:
				return err
			case <-stop:
				r.hub.tell(conductorID, StopRequested{})
				stop = nil
			case <-giveUp:
				r.hub.tell(conductorID, GiveUpRequested{})
				giveUp = nil
			}
		}
	})
}

// execute is Run with the actors on a carrier; wait is called once they are at work, and
// returns how the run ended.
func execute(o Options, c carrier, wait func(*run) error) (err error) {
	if a, ok := o.Home.(interface{ Aliased() bool }); ok && a.Aliased() && !o.Schedule.NoSave {
		return errors.New("layers share one memory (host.NewAliased): what such a run computes is not to be saved")
	}
	if n := o.Plan.Lanes(); n != len(o.Devices) {
		return fmt.Errorf("%d devices for a plan with %d lanes", len(o.Devices), n)
	}
	if err := o.checkWorld(); err != nil {
		return err
	}
	once, err := newShared(&o)
	if err != nil {
		return err
	}
	defer func() {
		o.leavePinned(err)
		if late := once.close(); err == nil {
			err = late
		}
	}()
	once.hub = newHub(c)
	r := &run{shared: once}
	for i, dev := range o.Devices {
		l, err := newLane(once, laneID(i), dev)
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
	}
	if err := r.registerAll(); err != nil {
		return err
	}
	for _, l := range r.lanes {
		if err := l.reachOthers(); err != nil {
			return err
		}
	}
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
		if o.Plan.Away != nil {
			if settled := o.Home.Settle(); err == nil {
				err = settled
			}
		}
	}()
	if err := r.startTrace(); err != nil {
		return err
	}
	r.lastStep, r.lastMoved = r.hub.now(), r.moved()
	if err := r.spawn(); err != nil {
		return err
	}
	r.hub.tell(conductorID, begin{})
	if o.Plan.Away != nil {
		r.hub.tell(stagerID, begin{})
	}
	return wait(r)
}

// leavePinned has the devices leave host memory pinned if the process is about to end. err is how the run ended.
func (o *Options) leavePinned(err error) {
	if o.LeavePinned == nil || !o.LeavePinned(err) {
		return
	}
	for _, dev := range o.Devices {
		if d, ok := device.Inner(dev).(interface{ LeavePinned() }); ok {
			d.LeavePinned()
		}
	}
}

// startTrace begins to tell Options.Timeline what happens.
func (r *run) startTrace() error {
	t := newTracer(r.o.Timeline, r.hub.now, r.names)
	if t == nil {
		return nil
	}
	for _, l := range r.lanes {
		if err := l.startTrace(t); err != nil {
			return fmt.Errorf("prepare the pipeline: trace: %w", err)
		}
	}
	t.places(r.lanes)
	r.hub.trace = t
	return nil
}

// spawn starts the actors.
func (r *run) spawn() error {
	o := r.o
	n := len(o.Plan.Layouts)
	var sources [][]int
	for _, t := range r.tiles {
		sources = append(sources, r.earlySources(t))
	}
	var into []int
	for _, g := range r.gradients {
		into = append(into, g.In)
	}
	conductor := newConductorCore(o.Schedule, o.Start, o.Plan.Depths.BatchesAhead, r.schedule)
	conductor.pairs = func(length int) (all, again int64) {
		return o.Plan.Spec.Config.AttendedPairs(length), o.Plan.Spec.PairsAgain(length)
	}
	if o.Preferences != nil {
		conductor.likelihood = o.Preferences.Likelihood
	}
	balance := balancing{}
	if o.Plan.Balances() && !o.Plan.EvalOnly {
		balance = balancing{layers: o.Plan.ExpertLayers(), lanes: len(r.lanes), several: r.team != nil}
	}
	clip, bound := o.MaxGradNorm, 0.0
	if o.LayerNorms {
		clip, bound = 0, o.MaxGradNorm
	}
	away := o.Plan.Away
	checkpointer := newCheckpointerCore(n, o.Start.Step)
	checkpointer.away, checkpointer.shown, conductor.away = away, make([]bool, len(away)), away != nil
	checkpointer.links = o.LinkStates
	processes := []*process{
		{id: reporterID, core: reporterCore{}, exec: r.execReporter},
		{id: checkpointerID, core: checkpointer, exec: r.execCheckpointer},
	}
	if away != nil {
		stager := newStagerCore(awayOrder(away, into, clip > 0), o.Plan.Depths.StateSlots)
		stager.lanes, stager.params, stager.links = len(r.lanes), o.Plan.ParamAway, o.LinkStates
		stager.setGradsAway(o.Plan.GradAway)
		processes = append(processes, &process{id: stagerID, core: stager, exec: r.execStager})
	}
	if r.team == nil {
		optimizer := newOptimizerCore(into, len(r.lanes), o.Start, clip)
		optimizer.bound, optimizer.rows, conductor.rows = bound, r.rowsFirst(), r.rowsFirst()
		optimizer.frozen = o.Plan.FrozenLayers()
		optimizer.setAway(away)
		optimizer.params, optimizer.gradAway = o.Plan.ParamAway, o.Plan.GradAway
		optimizer.setMatrices(r.plan, r.schedule)
		processes = append(processes, &process{id: optimizerID, core: optimizer, exec: r.execOptimizer})
	} else {
		conductor.several, conductor.balance = true, balance
		optimizer := newOptimizerCore(ids(n), len(r.lanes), o.Start, clip)
		optimizer.bound, optimizer.frozen = bound, o.Plan.FrozenLayers()
		optimizer.several, optimizer.order = true, backwardOrder(into)
		optimizer.setAway(away)
		processes = append(processes,
			&process{id: optimizerID, core: optimizer, exec: r.execOptimizer},
			&process{id: exchangerID, core: newExchangerCore(into, o.Plan.FrozenLayers(), o.Plan.Depths), exec: r.execExchanger},
			&process{id: gathererID, core: newGathererCore(len(r.lanes), o.Plan.Depths), exec: r.execGatherer})
	}
	for _, l := range r.lanes {
		var slots [schedule.NumClasses]int
		for class := range slots {
			slots[class], _ = l.plan.Slots(schedule.Class(class))
		}
		prefetcher := newPrefetcherCore(l.index, r.schedule.On(0) == int(l.index), n, o.Start.Step, sources, slots, o.batchSlots(), o.Plan.Depths)
		prefetcher.reachedBy, prefetcher.onDisk = l.reachedBy(), o.Plan.ParamAway
		offloader := newOffloaderCore(l.index, o.Plan.OwnSlabs(), o.Plan.GradAway, o.Plan.Depths, balance)
		if r.team != nil {
			offloader.landed = exchangerID
		}
		processes = append(processes,
			&process{id: l.index.offloader(), core: offloader, exec: l.execOffloader},
			&process{id: l.index.compute(), core: newComputeCore(l.index, o.Plan.Depths, balance), exec: l.execCompute},
			&process{id: l.index.prefetcher(), core: prefetcher, exec: l.execPrefetcher})
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
