package actors

import (
	"fmt"

	"mt/device"
	"mt/layers/schedule"
)

// Run trains or evaluates as o says. It returns when the device is idle, goroutines have ended and buffers are freed.
// The first fault anywhere ends the run and is its error. Checkpoints that were complete by then remain.
func Run(o Options) (err error) {
	return execute(o, newProtoCarrier(), func(r *run) error {
		for stop, abort := o.Stop, o.AbortStep; ; {
			select {
			case err := <-r.hub.ended:
				return err
			case <-stop:
				r.hub.tell(conductorID, StopRequested{})
				stop = nil
			case <-abort:
				r.hub.tell(conductorID, AbortRequested{})
				abort = nil
			}
		}
	})
}

// execute runs o with its actors on carrier c (which delivers messages and runs works). Once the
// actors have started, it calls wait, which waits for the end of the run and returns the run's
// error.
func execute(o Options, c carrier, wait func(*run) error) (err error) {
	if n := o.Plan.Lanes(); n != len(o.Devices) {
		return fmt.Errorf("%d devices for a plan with %d lanes", len(o.Devices), n)
	}
	if err := o.checkWorld(); err != nil {
		return err
	}
	r, err := newRun(&o)
	if err != nil {
		return err
	}
	defer func() {
		o.leavePinned(err)
		if closeErr := r.close(); err == nil {
			err = closeErr
		}
	}()
	r.hub = newHub(c)
	for i, dev := range o.Devices {
		l, err := newLane(r, laneID(i), dev)
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
		if o.Ending != nil {
			o.Ending()
		}
		r.hub.close()
		for _, l := range r.lanes {
			if drained := l.drain(); err == nil {
				err = drained
			}
		}
		if r.saving.Load() {
			o.Saver.Abort()
		}
		if o.Plan.StateOnDisk != nil {
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
	if o.Plan.StateOnDisk != nil {
		r.hub.tell(stagerID, begin{})
	}
	return wait(r)
}

// leavePinned calls LeavePinned with the run's error. If that returns true, the process is about to end. leavePinned
// then makes the devices leave host memory pinned, because the system releases the memory with the process.
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

// startTrace begins to record the run in Options.Timeline, if that is set.
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
	r.hub.watch = t
	return nil
}

// spawn makes the actors that the run needs and starts them.
func (r *run) spawn() error {
	o := r.o
	n := len(o.Plan.Layouts)
	var into []int
	for _, g := range r.gradients {
		into = append(into, g.In)
	}
	conductor := newConductorCore(o.Schedule, o.Start, o.Plan.Depths.BatchesAhead, r.schedule)
	conductor.pairs = func(length int) (all, again int64) {
		return o.Plan.Spec.Config.AttendedPairs(length), o.Plan.Spec.PairsAgain(length)
	}
	conductor.predictsAhead = o.Plan.Spec.Config.Ahead > 0
	if o.Preferences != nil {
		conductor.likelihood = o.Preferences.Likelihood
	}
	balance := balancing{}
	if o.Plan.Balances() && !o.Plan.EvalOnly {
		balance = balancing{layers: o.Plan.ExpertLayers(), lanes: len(r.lanes), distributed: r.comm != nil}
	}
	clip, bound := o.MaxGradNorm, 0.0
	if o.LayerNorms {
		clip, bound = 0, o.MaxGradNorm
	}
	onDisk := o.Plan.StateOnDisk
	checkpointer := newCheckpointerCore(n, o.Start.Step)
	checkpointer.stateOnDisk, checkpointer.shown, conductor.statesOnDisk = onDisk, make([]bool, len(onDisk)), onDisk != nil
	checkpointer.links = o.LinkStates
	processes := []*process{
		{id: reporterID, core: reporterCore{}},
		{id: checkpointerID, core: checkpointer},
	}
	if onDisk != nil {
		stager := newStagerCore(stagingOrder(onDisk, into, clip > 0), o.Plan.Depths.StateSlots)
		stager.lanes, stager.weightsOnDisk, stager.links = len(r.lanes), o.Plan.WeightsOnDisk, o.LinkStates
		stager.setGradsOnDisk(o.Plan.GradOnDisk)
		processes = append(processes, &process{id: stagerID, core: stager})
	}
	processes = append(processes, &process{id: optimizerID, core: newOptimizerCore(r.optimizerSpec(into, clip, bound), o.Start)})
	if r.comm != nil {
		conductor.distributed, conductor.balance = true, balance
		processes = append(processes,
			&process{id: exchangerID, core: newExchangerCore(into, o.Plan.FrozenLayers(), o.Plan.Depths)},
			&process{id: gathererID, core: newGathererCore(len(r.lanes), o.Plan.Depths)})
	}
	for _, l := range r.lanes {
		processes = append(processes, l.processes(balance)...)
	}
	processes = append(processes,
		&process{id: feederID, core: &feederCore{}},
		&process{id: conductorID, core: conductor})
	for _, s := range processes {
		s.exec = r.lanes[s.id.lane].do
		if err := r.hub.spawn(s); err != nil {
			return err
		}
	}
	return nil
}

// processes makes the actors of the lane: Prefetcher, Compute and Offloader. balance describes the load-balancing loss.
func (l *lane) processes(balance balancing) []*process {
	o := l.o
	var sources [][]int
	for _, t := range l.tiles {
		sources = append(sources, t.Sources())
	}
	var slots [schedule.NumClasses]int
	for class := range slots {
		slots[class], _ = l.plan.Slots(schedule.Class(class))
	}
	prefetcher := newPrefetcherCore(prefetcherSpec{lane: l.index, layers: len(o.Plan.Layouts), rows: l.schedule.On(0) == int(l.index), sources: sources, slots: slots,
		batches: o.batchSlots(), activations: o.Plan.Depths.ActivationSlots, kept: o.Plan.KeptSlots, experts: o.Plan.Experts > 0, weightsOnDisk: o.Plan.WeightsOnDisk, reachedBy: l.reachedBy()}, o.Start.Step)
	offloader := offloaderSpec{lane: l.index, own: o.Plan.OwnSlabs(), turns: o.Plan.Depths.GradSlabs, gradOnDisk: o.Plan.GradOnDisk, onHost: o.Plan.Spec.OnHost, parts: l.schedule.InParts(), head: o.Plan.Spec.HeadLanes, balance: balance, landed: toOptimizer}
	if l.comm != nil {
		offloader.landed = toExchanger
	}
	return []*process{
		{id: l.index.offloader(), core: newOffloaderCore(offloader)},
		{id: l.index.compute(), core: newComputeCore(computeSpec{l.index, o.Plan.Depths.GradBuffers, o.Plan.Experts > 0, balance})},
		{id: l.index.prefetcher(), core: prefetcher}}
}

// optimizerSpec makes the settings of the Optimizer's core. For each layer, into has the layer to
// whose gradient its own is added; the layer itself, unless two layers share a table. clip bounds
// the norm of all gradients, bound the norm of each layer's gradient; 0: no bound.
func (r *run) optimizerSpec(into []int, clip, bound float64) optimizerSpec {
	p := r.plan
	x := optimizerSpec{lanes: len(r.lanes), clip: clip, bound: bound, into: into, frozen: p.FrozenLayers(), distributed: r.comm != nil,
		stateOnDisk: p.StateOnDisk, gradOnDisk: p.GradOnDisk, weightsOnDisk: p.WeightsOnDisk, matrixBuffers: p.Depths.MatrixBuffers}
	if p.NSSteps > 0 && !p.EvalOnly {
		for l := range p.Layouts {
			x.matrices, x.laneOf = append(x.matrices, len(p.Matrices(l))), append(x.laneOf, laneID(r.schedule.On(l)))
		}
	}
	return x
}
