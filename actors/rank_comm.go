package actors

import (
	"fmt"
	"sync"
	"sync/atomic"

	"mt/base/accounts"
	"mt/base/cluster"
	"mt/host/optim"
)

// rankComm is what a rank needs to exchange data with the other ranks: communicators and buffers. nil: the run has one
// rank.
type rankComm struct {
	rank, size                          int
	gradients, weights, agreement, norm cluster.Comm
	balance                             cluster.Comm // for agreements on the experts' load
	received                            [][]byte     // exchange buffers: the parts of all ranks, in rank order
	sums                                [][]byte     // share slabs: summed gradients of this rank's shares, by layer or, without clipping, by exchange buffer

	sent     atomic.Int64 // bytes of gradients and weights sent to other ranks
	mu       sync.Mutex
	underWay int      // operations in progress
	closers  []func() // called when no operation is in progress
}

// checkWorld checks that World fits the plan's ranks, and that the options are supported with several ranks.
func (o *Options) checkWorld() error {
	size, rank := 1, 0
	if o.World != nil {
		size, rank = o.World.Size(), o.World.Rank()
	}
	switch {
	case size != max(1, o.Plan.Ranks) || rank != o.Plan.Rank:
		return fmt.Errorf("rank %d of %d has the plan of rank %d of %d", rank, size, o.Plan.Rank, max(1, o.Plan.Ranks))
	case size > 1 && o.Plan.NSSteps > 0:
		return fmt.Errorf("muon moves whole matrices, of which %d ranks have parts: train on one, or with optim: adamw", size)
	}
	return nil
}

// joinRanks makes the communicators and memory of a run with several ranks. It waits until the
// other ranks have made their communicators too.
func (r *run) joinRanks() error {
	w := r.o.World
	if w == nil || w.Size() == 1 {
		return nil
	}
	t := &rankComm{rank: w.Rank(), size: w.Size()}
	r.comm = t
	for range r.plan.Depths.ExchangeBuffers {
		b, err := r.newArena(accounts.Exchange, r.plan.ExchangeBytes())
		if err != nil {
			return err
		}
		t.received = append(t.received, b)
	}
	for _, bytes := range r.plan.ShareSlabBytes() {
		b, err := r.newArena(accounts.GradientSlabs, bytes)
		if err != nil {
			return err
		}
		t.sums = append(t.sums, b)
	}
	for _, c := range []struct {
		name string
		to   *cluster.Comm
	}{{"gradients", &t.gradients}, {"weights", &t.weights}, {"agreement", &t.agreement}, {"norm", &t.norm}, {"balance", &t.balance}} {
		made, err := w.NewComm(c.name)
		if err != nil {
			return err
		}
		*c.to = made
	}
	return nil
}

// beginOp counts a collective operation that begins.
func (t *rankComm) beginOp() {
	t.mu.Lock()
	t.underWay++
	t.mu.Unlock()
}

// endOp counts a collective operation that is done. After the last one it calls closers, which free the memory of the
// operations.
func (t *rankComm) endOp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.underWay--; t.underWay > 0 {
		return
	}
	for _, f := range t.closers {
		f()
	}
	t.closers = nil
}

// whenIdle calls f, which frees memory of collective operations, as soon as none is in progress.
// That is at once, unless the run has failed while operations were in progress.
func (t *rankComm) whenIdle(f func()) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.underWay > 0 {
			t.closers = append(t.closers, f)
			return
		}
	}
	f()
}

// collective begins a collective operation as work w of actor id. begin starts the operation and must call done at its
// end. found, which may be nil, then computes the work's result. `what` names the operation in errors.
func (r *run) collective(id address, w work, what string, begin func(done func(error)), found func() (any, error)) {
	r.comm.beginOp()
	begin(func(err error) {
		over := r.hub.stopped.Load()
		var result any
		if !over && err == nil && found != nil {
			result, err = found()
		}
		// The operation is counted as done before its result is sent. The receiver of the last result may end the run,
		// and a run that ends well must free all of its memory.
		r.comm.endOp()
		switch {
		case over:
		case err != nil:
			r.hub.fail(id, fmt.Errorf("%s: %w", what, err))
		default:
			r.hub.done(w, result)
		}
	})
}

// sum views the first n elements of share slab number i, which holds a summed gradient.
func (r *run) sum(i int, n int64) optim.Grad {
	return optim.Grad{Data: r.comm.sums[i][:n*r.plan.GradBytes()], BF16: r.plan.GradBF16, Elems: n}
}
