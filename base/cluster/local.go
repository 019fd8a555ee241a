package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// LocalOptions sets by how much, and in which order, ranks in one process report completions late, as a network might.
type LocalOptions struct {
	// Seed is the seed for the order in which completions are reported.
	Seed uint64
	// Delay is the maximum delay before each report; 0: none.
	Delay time.Duration
}

// localJob is the state that the ranks of LocalWorlds share. Normally every rank is a process of its own; these ranks
// all run in one process, for example in tests.
type localJob struct {
	size int
	o    LocalOptions

	mu      sync.Mutex
	comms   map[string]*localExchange
	made    []map[string]int // by rank: number of communicators made with a name
	joined  map[string]int   // number of ranks that have made a communicator
	changed sync.Cond        // joined has changed, or the run was aborted
	aborted error
	inboxes []*localInbox
}

// LocalWorlds makes n ranks that run in this process, without MPI, and returns the World of each. The caller closes
// every World, or aborts one, which aborts all.
func LocalWorlds(n int, o LocalOptions) []World {
	j := &localJob{size: n, o: o, comms: map[string]*localExchange{}, joined: map[string]int{}}
	j.changed.L = &j.mu
	out := make([]World, n)
	for r := range out {
		j.made = append(j.made, map[string]int{})
		j.inboxes = append(j.inboxes, newLocalInbox(rand.New(rand.NewPCG(o.Seed, uint64(r))), o.Delay))
		out[r] = &localWorld{j, r}
	}
	return out
}

// localWorld is the World (the view of all ranks) of a rank that runs in this process, without MPI.
type localWorld struct {
	*localJob
	rank int
}

// Rank implements World.
func (w *localWorld) Rank() int { return w.rank }

// Size implements World.
func (w *localWorld) Size() int { return w.size }

// Hosts implements World. Each rank pretends to be on its own host.
func (w *localWorld) Hosts() (out []string) {
	for r := range w.size {
		out = append(out, fmt.Sprintf("host %d", r))
	}
	return out
}

// NewComm implements World.
func (w *localWorld) NewComm(name string) (Comm, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s %d", name, w.made[w.rank][name])
	w.made[w.rank][name]++
	if w.comms[key] == nil {
		w.comms[key] = &localExchange{localJob: w.localJob, name: name, begun: make([]int, w.size), rounds: map[int]*localRound{}}
	}
	w.joined[key]++
	w.changed.Broadcast()
	for w.joined[key] < w.size && w.aborted == nil {
		w.changed.Wait()
	}
	return &localComm{w.comms[key], w.rank}, w.aborted
}

// Abort implements World. On all ranks, operations in progress and later ones end with an error.
func (w *localWorld) Abort(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aborted != nil {
		return
	}
	w.aborted = fmt.Errorf("rank %d ended the run: %s", w.rank, reason)
	for _, e := range w.comms {
		for _, at := range sortedRounds(e.rounds) {
			e.end(at, w.aborted)
		}
	}
	for _, in := range w.inboxes {
		in.close()
	}
	w.changed.Broadcast()
}

// Close implements World.
func (w *localWorld) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.comms {
		for _, r := range e.rounds {
			if r.calls[w.rank] != nil {
				return fmt.Errorf("rank %d: %s of %s is not complete", w.rank, r.calls[w.rank].name, e.name)
			}
		}
	}
	w.inboxes[w.rank].close()
	return w.aborted
}

// sortedRounds returns the keys of rounds, the numbers of operations, in ascending order.
func sortedRounds(rounds map[int]*localRound) (out []int) {
	for at := range rounds {
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

// localInbox calls the completion callbacks of one rank, one at a time, on its own goroutine.
type localInbox struct {
	mu     sync.Mutex
	ready  []func()
	closed bool
	wake   chan struct{}
}

func newLocalInbox(draw *rand.Rand, delay time.Duration) *localInbox {
	in := &localInbox{wake: make(chan struct{}, 1)}
	go in.run(draw, delay)
	return in
}

// add schedules a call of the completion callback f. After the inbox is closed, f runs at once on a
// new goroutine, so that nobody waits for it forever.
func (in *localInbox) add(f func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		go f()
		return
	}
	in.ready = append(in.ready, f)
	in.poke()
}

func (in *localInbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.poke()
}

func (in *localInbox) poke() {
	select {
	case in.wake <- struct{}{}:
	default: // already awake
	}
}

// run is the inbox's goroutine: it calls the scheduled callbacks until the inbox is closed and
// empty. draw chooses the next callback at random, and a random pause of at most delay before it.
func (in *localInbox) run(draw *rand.Rand, delay time.Duration) {
	for {
		if delay > 0 {
			time.Sleep(time.Duration(draw.Int64N(int64(delay))))
		}
		in.mu.Lock()
		n, closed := len(in.ready), in.closed
		var f func()
		if n > 0 {
			i := draw.IntN(n)
			f = in.ready[i]
			in.ready = slices.Delete(in.ready, i, i+1)
		}
		in.mu.Unlock()
		switch {
		case f != nil:
			f()
		case closed:
			return
		default:
			<-in.wake
		}
	}
}
