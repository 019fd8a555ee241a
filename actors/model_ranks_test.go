package actors

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"mt/internal/testkit"
)

// This file simulates several ranks, one world (simulated run) for each, which the model test runs
// together. Collective operations on one communicator must begin in the same order on all ranks. An
// operation is complete when all ranks have begun it. Each rank is notified of that at a random
// time.

// fabric is the simulated network: it matches the collective operations that the ranks begin.
type fabric struct {
	worlds []*world
	rounds map[string][]*joint // by communicator
	begun  map[string][]int    // by communicator and rank: number of operations
}

// joint is one collective operation, with the work of each rank that takes part.
type joint struct {
	works []work // by rank
	begun int
}

// teamWorld is the part of a rank's simulated run that concerns the other ranks, such as its
// exchange buffers. nil: there is one rank.
type teamWorld struct {
	*fabric
	rank     int
	ready    []func()    // complete operations that the rank does not know of
	sending  map[int]int // by slab: exchanges that send from it
	buffers  map[int]int // by exchange buffer in use: the layer of its gradients
	full     map[int]bool
	shares   []int // by layer: the version of the rank's share
	stops    int
	failed   error // the run's error
	underWay int
	gathers  int // gathers among them
}

// TestRanksFailInAnyOrder: a non-finite step on one rank ends all ranks with the same error, in any order of events. No
// collective operation stays in progress.
func TestRanksFailInAnyOrder(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t)
	evaluated, stopped := 0, 0
	n := testkit.Count(t, 10_000, 300)
	if testkit.Race {
		n = 60 // all cores run on one goroutine
	}
	first := drawSeed(t, n, 10_000)
	for seed := first; seed < first+int64(n); seed++ {
		cfg := randomConfig(seed)
		if cfg.head != nil { // several ranks keep the head on one lane
			cfg.lane, cfg.head, cfg.reaches = nil, nil, 0
		}
		cfg.ranks, cfg.perRound, cfg.weightsOnDisk, cfg.gradOnDisk, cfg.links, cfg.steps, cfg.pauseAfter, cfg.enoughAt = 2+int(seed)%2, 0, nil, nil, false, 6, 0, 0
		cfg.depths.ExchangeBuffers, cfg.depths.GathersAhead, cfg.depths.GradSlabs = 1+int(seed/2)%2, 1+int(seed/4)%2, max(2, cfg.depths.GradSlabs)
		wantStep, wantFinite := 0, 0
		if cfg.skip = nil; cfg.clip == 0 && seed%2 == 0 {
			cfg.spoilt, wantStep, wantFinite = 2, 2, 1
		} else {
			cfg.skip, cfg.maxNonFinite = map[int]bool{}, 1+int(seed/8)%2
			for step := 2; step <= 6; step++ {
				cfg.skip[step] = true
			}
			wantStep, wantFinite = 1+cfg.maxNonFinite, 1
		}
		w := newWorld(t, cfg)
		err := w.play()
		for rank := range w.team.worlds {
			one := w.team.worlds[rank]
			var at *NonFiniteError
			switch {
			case err != nil:
			case one.team.failed == nil && one.team.stops > 0 && cfg.stopAfter >= 0 && w.team.failed == nil:
				stopped++ // the stop came before the failure
			case !errors.As(one.team.failed, &at) || at.Step != wantStep || at.Finite != wantFinite || at.Error() != w.team.failed.Error():
				err = fmt.Errorf("rank %d ended with %v (%+v), rank 0 with %v", rank, one.team.failed, at, w.team.failed)
			}
			if len(one.steps) > wantStep && err == nil {
				err = fmt.Errorf("rank %d made steps %v and was to give up after step %d", rank, one.steps, wantStep)
			}
			evaluated += one.evals
		}
		if err != nil {
			t.Fatalf("seed %d: %v\nconfiguration: %+v", seed, err, cfg)
		}
	}
	if evaluated == 0 || stopped == 0 {
		t.Errorf("%d evaluations and %d stops", evaluated, stopped)
	}
}

// join adds the actors that exist only with several ranks to the simulated run w. sit registers a
// core under its actor's address.
func (w *world) join(sit func(address, core)) {
	w.team = &teamWorld{sending: map[int]int{}, buffers: map[int]int{}, full: map[int]bool{}, shares: make([]int, w.cfg.layers)}
	into := summedIn(w.cfg.layers, w.cfg.tied)
	conductor := w.once(conductorRole).(*conductorCore)
	conductor.distributed, conductor.balance = true, w.cfg.balance(len(w.lanes))
	for lane := range laneID(len(w.lanes)) {
		w.cores[seat(lane.offloader())].(*offloaderCore).landed = toExchanger
	}
	sit(exchangerID, newExchangerCore(into, nil, w.cfg.depths))
	sit(gathererID, newGathererCore(len(w.lanes), w.cfg.depths))
}

// play runs the simulated run w, together with one for each other rank, and checks the results of
// all. Its error is the first violation.
func (w *world) play() error {
	if w.team == nil {
		if err := w.run(); err != nil {
			return err
		}
		return w.verify()
	}
	f := &fabric{rounds: map[string][]*joint{}, begun: map[string][]int{}}
	for rank := range w.cfg.ranks {
		one := w
		if rank > 0 {
			one = newWorld(w.t, w.cfg)
			one.rnd = rand.New(rand.NewSource(w.cfg.seed ^ int64(rank)<<40))
		}
		one.team.fabric, one.team.rank = f, rank
		f.worlds = append(f.worlds, one)
	}
	if err := f.run(); err != nil {
		return err
	}
	if w.cfg.maxNonFinite+w.cfg.spoilt > 0 {
		return nil
	}
	for rank, one := range f.worlds {
		if err := one.verify(); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		if !slices.Equal(one.steps, w.steps) || !slices.Equal(one.saves, w.saves) || one.evals != w.evals || one.team.stops != w.team.stops || one.team.stops > 1 {
			return fmt.Errorf("rank %d made steps %v, saves %v, %d evaluations and %d stops; rank 0 %v, %v, %d and %d", rank,
				one.steps, one.saves, one.evals, one.team.stops, w.steps, w.saves, w.evals, w.team.stops)
		}
	}
	return nil
}

// run runs the simulated runs of all ranks to their end. If the configuration says so, one of the
// ranks is asked to stop on the way.
func (f *fabric) run() error {
	first := f.worlds[0]
	asked := int(first.cfg.seed) % len(f.worlds)
	for _, w := range f.worlds {
		w.begin()
	}
	for n := 0; ; n++ {
		if n == first.cfg.stopAfter*len(f.worlds) && !f.worlds[asked].ended {
			f.worlds[asked].askToStop()
		}
		at, moved := first.rnd.Intn(len(f.worlds)), false
		for i := range f.worlds {
			w := f.worlds[(at+i)%len(f.worlds)]
			if moved = w.move(); w.err != nil {
				return fmt.Errorf("rank %d: %w", w.team.rank, w.err)
			}
			if moved {
				break
			}
		}
		if !moved {
			break
		}
		if n > 3_000_000 {
			return fmt.Errorf("no end after %d deliveries", n)
		}
	}
	for rank, w := range f.worlds {
		if !w.ended {
			return fmt.Errorf("deadlock: nothing is under way and rank %d has not ended (steps done: %v)", rank, w.steps)
		}
	}
	return nil
}

// begin begins the collective operation e on this rank of the simulated network. When all ranks
// have begun it, begin checks that they agree on what it is, and lets each rank be notified later.
func (t *teamWorld) begin(w *world, e work) {
	var name string
	switch d := e.do.(type) {
	case exchange:
		name = "gradients"
		if _, taken := t.buffers[d.Buffer]; taken {
			w.failf("gradients of layer %d go into exchange buffer %d, which is taken", d.Layer, d.Buffer)
		}
		if !w.full[d.Slab] {
			w.failf("the gradient of layer %d is sent from slab %d, which has none", d.Layer, d.Slab)
		}
		t.buffers[d.Buffer] = d.Layer
		t.sending[d.Slab]++
	case gather:
		name = "weights"
		if t.gathers++; t.gathers > w.cfg.depths.GathersAhead {
			w.failf("%d layers are gathered at once, of %d", t.gathers, w.cfg.depths.GathersAhead)
		}
		if t.shares[d.Layer] != w.version[d.Layer]+1 {
			w.failf("layer %d is gathered, its share is at %d and the tile at %d", d.Layer, t.shares[d.Layer], w.version[d.Layer])
		}
	case agreeNorm:
		name = "norm"
	case agreePass:
		name = "agreement"
	case agreeLoad:
		name = "balance"
	case saveLayer:
		name = "checkpoint"
	}
	n := len(t.worlds)
	if t.fabric.begun[name] == nil {
		t.fabric.begun[name] = make([]int, n)
	}
	at := t.fabric.begun[name][t.rank]
	t.fabric.begun[name][t.rank]++
	if at == len(t.rounds[name]) {
		t.rounds[name] = append(t.rounds[name], &joint{works: make([]work, n)})
	}
	o := t.rounds[name][at]
	o.works[t.rank] = e
	t.underWay++
	if o.begun++; o.begun < n {
		return
	}
	for rank, each := range t.worlds {
		if a, b := sameOnAll(o.works[0].do), sameOnAll(o.works[rank].do); a != b {
			w.failf("operation %d of %s is %s on rank 0 and %s on rank %d", at, name, a, b, rank)
		}
		each.team.ready = append(each.team.ready, func() { each.team.complete(each, o) })
	}
}

// sameOnAll describes an operation by the values that must be equal on all ranks, such as its step
// and layer.
func sameOnAll(do any) string {
	switch d := do.(type) {
	case exchange:
		return fmt.Sprintf("step %d layer %d", d.Step, d.Layer)
	case gather:
		return fmt.Sprintf("layer %d version %d", d.Layer, d.Version)
	case agreeNorm:
		return fmt.Sprintf("norm of step %d layer %d", d.Step, d.Layer)
	case agreePass:
		return d.p.String()
	case agreeLoad:
		return d.p.String()
	}
	return fmt.Sprintf("%s %+v", reflect.TypeOf(do), do)
}

// clone copies a load.
func (l expertLoad) clone() expertLoad {
	return expertLoad{slices.Clone(l.Counts), slices.Clone(l.Probs)}
}

// number returns the rank's index.
func (t *teamWorld) number() int {
	if t == nil {
		return 0
	}
	return t.rank
}

// size returns the number of ranks.
func (t *teamWorld) size() int {
	if t == nil {
		return 1
	}
	return len(t.worlds)
}

// arrived returns how many collective operations are complete without the rank having been notified
// yet.
func (t *teamWorld) arrived() int {
	if t == nil {
		return 0
	}
	return len(t.ready)
}

// arrive notifies the rank that entry i of t.ready, a collective operation that all ranks have
// begun, is complete.
func (t *teamWorld) arrive(i int) {
	f := t.ready[i]
	t.ready = slices.Delete(t.ready, i, i+1)
	f()
}

// complete ends operation o on this rank. It computes the rank's result, such as a sum over all
// ranks, and sends the messages that follow.
func (t *teamWorld) complete(w *world, o *joint) {
	t.underWay--
	var result any
	switch d := o.works[t.rank].do.(type) {
	case exchange:
		t.sending[d.Slab]--
		t.full[d.Buffer] = true
	case gather:
		t.gathers--
		w.version[d.Layer]++
	case agreeNorm:
		var sum float64
		for _, e := range o.works {
			sum += e.do.(agreeNorm).Squares
		}
		result = sum
	case agreePass:
		var all []passEnd
		for _, e := range o.works {
			all = append(all, e.do.(agreePass).Own)
		}
		result = all
	case agreeLoad:
		var sum expertLoad
		for _, e := range o.works {
			sum = sum.plus(e.do.(agreeLoad).Own.clone())
		}
		result = sum
	}
	w.done(o.works[t.rank], result)
}

// sends checks messages that free buffers: a slab from which an exchange still sends, or an
// exchange buffer that still receives, must not be freed.
func (t *teamWorld) sends(w *world, msg message) {
	if t == nil {
		return
	}
	switch m := msg.(type) {
	case SlabFreed:
		if t.sending[m.Slab] > 0 {
			w.failf("slab %d is freed while it is sent from", m.Slab)
		}
	case ExchangeBufferFreed:
		if !t.full[m.Buffer] {
			w.failf("exchange buffer %d is freed while it is received into", m.Buffer)
		}
		delete(t.buffers, m.Buffer)
		delete(t.full, m.Buffer)
	case updateDone:
		t.shares[m.Layer]++
	}
}

// sum simulates the task sumShare. It checks that the exchange buffer to add up belongs to the
// layer and has received the parts of all ranks.
func (t *teamWorld) sum(w *world, d sumShare) shareSum {
	if layer, taken := t.buffers[d.Buffer]; !taken || layer != d.Layer || !t.full[d.Buffer] {
		w.failf("gradients of layer %d are added up from exchange buffer %d, which is for layer %d and full %t", d.Layer, d.Buffer, layer, t.full[d.Buffer])
	}
	if w.cfg.spoilt == d.Step && t.rank == len(t.worlds)-1 && d.Layer == w.cfg.layers/2 {
		return shareSum{squares: math.NaN()}
	}
	return shareSum{squares: 1}
}

// skips reports whether this rank computes the non-finite loss of a step that is to be skipped.
// That is the last rank.
func (t *teamWorld) skips() bool { return t == nil || t.rank == len(t.worlds)-1 }

// stopped returns how often the ranks have agreed to stop.
func (t *teamWorld) stopped() int {
	if t == nil {
		return 0
	}
	return t.stops
}

// late returns how many steps a run may make after a request to stop, in addition to those already
// planned.
func (t *teamWorld) late() int {
	if t == nil {
		return 0
	}
	return 1 // the ranks may have been agreeing on a pass
}

// end checks that no collective operation is in progress when the run has ended.
func (t *teamWorld) end(w *world) {
	if t != nil && t.underWay > 0 {
		w.failf("the run ends and %d operations are under way", t.underWay)
	}
}
