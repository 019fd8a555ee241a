package actors

import "sync"

// gate lets a commit wait until the reports of its step are delivered: what is
// written about a step must be there before a checkpoint that stands after it.
type gate struct {
	mu     sync.Mutex
	moved  *sync.Cond
	step   int // reports up to it are delivered
	closed bool
}

func newGate(step int) *gate {
	g := &gate{step: step}
	g.moved = sync.NewCond(&g.mu)
	return g
}

// pass says that the reports up to step are delivered.
func (g *gate) pass(step int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step = max(g.step, step)
	g.moved.Broadcast()
}

// wait returns once the reports up to step are delivered, or with false when
// the run has ended and they will not be.
func (g *gate) wait(step int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.step < step && !g.closed {
		g.moved.Wait()
	}
	return g.step >= step
}

// close lets all go that wait.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.moved.Broadcast()
}
