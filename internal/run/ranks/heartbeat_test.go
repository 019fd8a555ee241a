package ranks

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mt/base/cluster"
	"mt/internal/run/settings"
)

// wires carries bytes between ranks like a network: a byte that one rank sends arrives even if
// other ranks do nothing.
type wires struct {
	carried [][]chan byte // from, to
	done    atomic.Int64  // operations that are complete
}

func newWires(n int) *wires {
	w := &wires{carried: make([][]chan byte, n)}
	for from := range w.carried {
		for range n {
			w.carried[from] = append(w.carried[from], make(chan byte, 1000))
		}
	}
	return w
}

// close ends the wires: every receiver that still waits gets a byte.
func (w *wires) close() {
	for _, row := range w.carried {
		for _, c := range row {
			close(c)
		}
	}
}

// end is one rank's communicator over wires.
type end struct {
	cluster.Comm
	*wires
	rank int
}

// AllToAllV implements cluster.Comm for parts of at most a byte.
func (e end) AllToAllV(send []byte, sends []int, recv []byte, receives []int, done func(error)) {
	for to, n := range sends {
		if n > 0 {
			e.carried[e.rank][to] <- send[0]
			send = send[1:]
		}
	}
	go func() {
		for from, n := range receives {
			if n > 0 {
				recv[0] = <-e.carried[from][e.rank]
			}
		}
		done(nil)
		e.done.Add(1)
	}()
}

// inTime returns a heartbeat whose rounds follow each other without pause. No sign of life is late
// until the channel late is closed; then all missing ones are.
func inTime(late <-chan time.Time) settings.Heartbeat {
	now := make(chan time.Time)
	close(now)
	return settings.Heartbeat{Interval: 1, Timeout: 60 * time.Second, After: func(d time.Duration) <-chan time.Time {
		if d == 1 {
			return now
		}
		return late
	}}
}

// TestHeartbeatNamesTheSilent: if one rank stops sending signs of life, the others report this rank
// and no other.
func TestHeartbeatNamesTheSilent(t *testing.T) {
	const n, silent = 4, 2
	w, worlds := newWires(n), cluster.LocalWorlds(n, cluster.LocalOptions{})
	t.Cleanup(func() {
		for _, w := range worlds {
			_ = w.Close()
		}
	})
	late := make(chan time.Time)
	said := make(chan string, n)
	var beats []*heartbeat
	for r, world := range worlds {
		beats = append(beats, startHeartbeat(world, end{wires: w, rank: r}, inTime(late), func(reason string) { said <- reason }))
	}
	for w.done.Load() < 100 { // a few rounds
		time.Sleep(time.Millisecond)
	}
	beats[silent].quit()
	<-beats[silent].ended
	// Wait until the other ranks are blocked in a round that cannot complete.
	for was := int64(-1); was != w.done.Load(); {
		was = w.done.Load()
		time.Sleep(20 * time.Millisecond)
	}
	close(late)
	first := <-said
	if want := "no sign of life for 1m0s of rank 2 on host 2: "; !strings.HasPrefix(strings.Replace(first, "1m00s", "1m0s", 1), want) {
		t.Errorf("said %q, want %q", first, want)
	}
	for _, p := range beats {
		p.quit()
		<-p.ended
	}
	w.close()
}

// counted is a communicator that counts the operations that begin on it.
type counted struct {
	cluster.Comm
	begun *atomic.Int64
}

// AllToAllV implements cluster.Comm.
func (c counted) AllToAllV(send []byte, sends []int, recv []byte, receives []int, done func(error)) {
	c.begun.Add(1)
	c.Comm.AllToAllV(send, sends, recv, receives, done)
}

// TestHeartbeatStops: a heartbeat continues until all ranks have stopped it. It then ends on each
// rank, and no operation is in progress.
func TestHeartbeatStops(t *testing.T) {
	const n = 3
	worlds := cluster.LocalWorlds(n, cluster.LocalOptions{Seed: 3})
	said := make(chan string, n)
	comms := make([]cluster.Comm, n)
	var made sync.WaitGroup
	for r, world := range worlds {
		made.Go(func() { comms[r], _ = world.NewComm("pulse") })
	}
	made.Wait()
	var beats []*heartbeat
	var signs atomic.Int64
	for r, world := range worlds {
		beats = append(beats, startHeartbeat(world, counted{comms[r], &signs}, inTime(nil), func(reason string) { said <- reason }))
	}
	for signs.Load() < 5*n*n { // it goes on from round to round
		time.Sleep(time.Millisecond)
	}
	var stopped []int
	var mu sync.Mutex
	var all sync.WaitGroup
	asked := make(chan struct{})
	for r := range n - 1 {
		all.Go(func() {
			if r > 0 {
				<-asked
			}
			beats[r].stop()
			mu.Lock()
			defer mu.Unlock()
			stopped = append(stopped, r)
		})
	}
	close(asked)
	mu.Lock()
	if len(stopped) > 0 {
		t.Errorf("ranks %v have stopped, and not all were asked to", stopped)
	}
	mu.Unlock()
	beats[n-1].stop()
	all.Wait()
	if len(stopped) != n-1 || len(said) > 0 {
		t.Errorf("ranks %v have stopped, %d said something", slices.Sorted(slices.Values(stopped)), len(said))
	}
	for _, w := range worlds {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
