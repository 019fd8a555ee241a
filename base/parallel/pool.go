package parallel

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// How often an idle goroutine looks again before it blocks. One look yields the
// processor, so other goroutines are never held up by it. A worker's spin lasts
// some tens of microseconds: longer than the gap between two phases of a matrix
// product, shorter than what a user would see as load.
const (
	workerSpins = 400
	callerSpins = 200
)

// errGoexit stands for a function that ended a worker's goroutine.
var errGoexit = errors.New("parallel: a loop body called runtime.Goexit")

// Pool is a set of worker goroutines that help the callers of Run. Its methods
// may be called from several goroutines at once. The zero value is not usable:
// make one with New.
type Pool struct {
	threads int

	mu     sync.Mutex
	open   []*job // jobs that may still have unclaimed indices, oldest first
	free   []*job // jobs to be used again
	closed bool

	posted   atomic.Uint64 // jobs opened so far, and one more when closed
	sleepers atomic.Int64  // workers that block, or are about to
	wake     chan struct{}
	workers  sync.WaitGroup
}

// job is one call of Run.
type job struct {
	f    func(int)
	n    int64
	next atomic.Int64 // the first index nobody has claimed

	helpers atomic.Int64 // workers inside; changed with Pool.mu held
	waiting bool         // the caller blocks on idle; guarded by Pool.mu
	idle    chan struct{}

	failMu sync.Mutex
	failed bool
	cause  any
}

// New starts a pool on which a call of Run uses up to threads goroutines, the
// caller among them. threads = 0 means runtime.GOMAXPROCS(0); a negative number
// counts as 1. Close ends the workers.
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

// Threads is the number of goroutines one call of Run uses at most.
func (p *Pool) Threads() int { return p.threads }

// Run calls f(0) … f(n-1), each once, in no particular order, on the calling
// goroutine and on free workers, and returns when all have returned. f may call
// Run on the same pool. If a call of f panics, indices nobody has begun are
// dropped and Run panics with the same value once the others have returned.
// After Close, and without a pool (nil), Run does everything on the calling
// goroutine.
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

// Close ends the workers and waits until they are gone. Calls of Run that are
// under way finish. Close may be called more than once.
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

// post opens a job for the workers and wakes as many as can be of use.
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

// await closes j to further workers and returns when those inside have left:
// then every index has been dealt with and nobody else refers to j.
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

// finish waits for the helpers of j, makes it ready for another call and panics
// if f failed.
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

// unlist takes j off the open jobs, if it is there. p.mu is held.
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

// serve is the life of a worker.
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

// join enters the oldest open job that has an unclaimed index. Without one it
// returns nil, and whether the pool is closed.
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

// help works on j and leaves it, even if f ends the goroutine.
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

// rest returns when a job may have been posted since seen was read: after a
// short spin, then blocked. The count of sleepers goes up before the last look
// and post reads it after the job is listed, so no wake-up is lost; one that
// comes without need costs a look.
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

// work claims indices of j and calls f until none is left or f panics.
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

// fail drops the indices nobody has claimed and keeps the first cause for the
// caller of Run.
func (j *job) fail(cause any) {
	j.next.Store(j.n)
	j.failMu.Lock()
	defer j.failMu.Unlock()
	if !j.failed {
		j.failed, j.cause = true, cause
	}
}
