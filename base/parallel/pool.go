package parallel

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// workerSpins and callerSpins are how many times an idle goroutine polls before it blocks. Each
// poll yields the processor, so polling does not delay other goroutines. A worker polls for some
// tens of microseconds. This is longer than the gap between two phases of a matrix product, and too
// short for a user to see as load.
const (
	workerSpins = 400
	callerSpins = 200
)

// errGoexit is the cause that fail records when a loop body ends its goroutine with runtime.Goexit instead of
// returning.
var errGoexit = errors.New("parallel: a loop body called runtime.Goexit")

// Pool is a set of worker goroutines that help callers of Run. Its methods are safe for concurrent use. New makes a
// Pool; the zero value is not usable.
type Pool struct {
	threads int

	mu     sync.Mutex
	open   []*job // jobs that may still have unclaimed indices, oldest first
	free   []*job // finished jobs, for reuse
	closed bool

	posted   atomic.Uint64 // jobs opened so far, plus 1 after Close
	sleepers atomic.Int64  // workers that block, or are about to
	wake     chan struct{}
	workers  sync.WaitGroup
}

// job is one call of Run, on which workers may help.
type job struct {
	f    func(int)
	n    int64
	next atomic.Int64 // the first unclaimed index

	helpers atomic.Int64 // workers inside the job; changed with Pool.mu held
	waiting bool         // the caller blocks on idle; guarded by Pool.mu
	idle    chan struct{}

	failMu sync.Mutex
	failed bool
	cause  any
}

// New starts a pool. A call of Run uses at most threads goroutines, including the caller. A threads of 0 means
// runtime.GOMAXPROCS(0); a negative number counts as 1. Close ends the workers.
func New(threads int) *Pool {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	threads = max(threads, 1)
	p := &Pool{threads: threads, wake: make(chan struct{}, threads)}
	p.workers.Add(threads - 1)
	for range threads - 1 {
		go p.serve()
	}
	return p
}

// Threads returns the maximum number of goroutines that one call of Run uses.
func (p *Pool) Threads() int { return p.threads }

// Run calls f(0) … f(n-1), each once, in no particular order, and returns when all calls have returned. The calls run
// on the calling goroutine and on free workers. A nil or closed pool uses the calling goroutine alone. f may call Run
// on the same pool. If f panics, Run drops the unclaimed indices, waits for the others and panics with the same value.
func (p *Pool) Run(n int, f func(i int)) {
	if p == nil || n <= 1 || p.threads == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	j := p.post(n, f)
	defer p.finish(j)
	j.work()
}

// Close ends the workers and waits for them. Running calls of Run finish. Close may be called more than once.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.posted.Add(1)
		close(p.wake)
	}
	p.mu.Unlock()
	p.workers.Wait()
}

// post opens a job that calls f for n indices, and wakes as many workers as the job can use.
func (p *Pool) post(n int, f func(int)) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	var j *job
	if last := len(p.free) - 1; last >= 0 {
		j, p.free = p.free[last], p.free[:last]
	} else {
		j = &job{idle: make(chan struct{}, 1)}
	}
	j.f, j.n = f, int64(n)
	j.next.Store(0)
	if p.closed {
		return j
	}
	p.open = append(p.open, j)
	p.posted.Add(1)
	for range min(p.sleepers.Load(), int64(n-1)) {
		select {
		case p.wake <- struct{}{}:
		default: // enough tokens for every worker are there already
		}
	}
	return j
}

// await lets no further worker join j and waits until the workers inside have left. Then f has returned for every
// index, or the index was dropped, and no other goroutine refers to j.
func (p *Pool) await(j *job) {
	p.mu.Lock()
	p.unlist(j)
	p.mu.Unlock()
	for range callerSpins {
		if j.helpers.Load() == 0 {
			return
		}
		runtime.Gosched()
	}
	p.mu.Lock()
	j.waiting = j.helpers.Load() > 0
	waiting := j.waiting
	p.mu.Unlock()
	if waiting {
		<-j.idle
	}
}

// finish waits until the workers have left j and puts j on the free list. If f has panicked, finish panics with the
// same value.
func (p *Pool) finish(j *job) {
	p.await(j)
	failed, cause := j.failed, j.cause
	j.f, j.failed, j.cause = nil, false, nil
	p.mu.Lock()
	p.free = append(p.free, j)
	p.mu.Unlock()
	if failed {
		panic(cause)
	}
}

// unlist removes j from the list of open jobs, if j is in it. The caller holds p.mu.
func (p *Pool) unlist(j *job) {
	for i, o := range p.open {
		if o == j {
			last := len(p.open) - 1
			copy(p.open[i:], p.open[i+1:])
			p.open[last] = nil
			p.open = p.open[:last]
			return
		}
	}
}

// serve is the loop of one worker: it helps open jobs, or rests if there are none.
func (p *Pool) serve() {
	defer p.workers.Done()
	for {
		seen := p.posted.Load()
		j, closed := p.join()
		switch {
		case j != nil:
			p.help(j)
		case closed:
			return
		default:
			p.rest(seen)
		}
	}
}

// join makes the calling worker a helper of the oldest open job with an unclaimed index, and returns the job. If there
// is none, join returns nil and whether the pool is closed.
func (p *Pool) join() (*job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range p.open {
		if j.next.Load() < j.n {
			j.helpers.Add(1)
			return j, false
		}
	}
	return nil, p.closed
}

// help works on job j and then leaves it. It leaves j even if f ends the goroutine with runtime.Goexit, so that the
// caller of Run does not wait forever.
func (p *Pool) help(j *job) {
	returned := false
	defer func() {
		if !returned {
			j.fail(errGoexit)
		}
		p.mu.Lock()
		if j.helpers.Add(-1) == 0 && j.waiting {
			j.waiting = false
			j.idle <- struct{}{}
		}
		p.mu.Unlock()
	}()
	j.work()
	returned = true
}

// rest waits until a job may have been posted after the worker has read seen from p.posted. It spins briefly, then
// blocks. A wake-up without a job costs only one check.
//
// No wake-up is lost: rest raises sleepers before its last check of posted, and post reads sleepers after it has listed
// the job.
func (p *Pool) rest(seen uint64) {
	for range workerSpins {
		if p.posted.Load() != seen {
			return
		}
		runtime.Gosched()
	}
	p.sleepers.Add(1)
	defer p.sleepers.Add(-1)
	if p.posted.Load() == seen {
		<-p.wake
	}
}

// work claims unclaimed indices of j one by one and calls f, until no index is left or f panics.
func (j *job) work() {
	defer func() {
		if cause := recover(); cause != nil {
			j.fail(cause)
		}
	}()
	for i := j.next.Add(1) - 1; i < j.n; i = j.next.Add(1) - 1 {
		j.f(int(i))
	}
}

// fail drops the unclaimed indices of j. It keeps cause for the caller of Run, if it is the first.
func (j *job) fail(cause any) {
	j.next.Store(j.n)
	j.failMu.Lock()
	defer j.failMu.Unlock()
	if !j.failed {
		j.failed, j.cause = true, cause
	}
}
