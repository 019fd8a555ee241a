package ranks

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"mt/base/cluster"
	"mt/base/human"
	"mt/internal/run/settings"
)

// DefaultHeartbeat is the heartbeat of every run. A rank sends its signs of life on a goroutine of its own, so a step
// may take longer than Timeout.
var DefaultHeartbeat = settings.Heartbeat{Interval: 5 * time.Second, Timeout: 60 * time.Second, ExitWait: 5 * time.Second, After: time.After}

// heartbeat ends the run when a rank is silent. Every Interval a round begins, in which each rank sends one sign to
// all others. Each rank's sign is a collective operation of its own, so a silent rank leaves only its own operation
// open. Between rounds no operation is under way.
type heartbeat struct {
	w cluster.World
	c cluster.Comm
	settings.Heartbeat

	fail          func(reason string) // ends the run
	leaving, gone chan struct{}
	leaves, goes  sync.Once
	ended         chan struct{}
}

// startHeartbeat begins to send and await signs of life. fail gets a message that names the silent ranks.
func startHeartbeat(w cluster.World, c cluster.Comm, b settings.Heartbeat, fail func(reason string)) *heartbeat {
	p := &heartbeat{w: w, c: c, Heartbeat: b, fail: fail, leaving: make(chan struct{}), gone: make(chan struct{}), ended: make(chan struct{})}
	go p.run()
	return p
}

// stop tells the other ranks in the next round that this rank leaves. It returns when all ranks leave.
func (p *heartbeat) stop() {
	p.leaves.Do(func() { close(p.leaving) })
	<-p.ended
}

// quit ends this rank's heartbeat without waiting for the others, because the rank is about to abort the run.
func (p *heartbeat) quit() {
	p.goes.Do(func() { close(p.gone) })
}

// errEnding is the error of a heartbeat round that quit has interrupted, since this rank ends the run.
var errEnding = errors.New("the run is being ended")

// The signs of life that a rank sends in each round.
const (
	staying byte = iota
	going
)

func (p *heartbeat) run() {
	defer close(p.ended)
	for {
		select {
		case <-p.After(p.Interval):
		case <-p.leaving:
		case <-p.gone:
			return
		}
		last, silent, err := p.round()
		switch {
		case err != nil: // the run is being ended
			return
		case len(silent) > 0:
			var names []string
			for _, r := range silent {
				names = append(names, fmt.Sprintf("rank %d on %s", r, p.w.Hosts()[r]))
			}
			p.fail(fmt.Sprintf("no sign of life for %s of %s: look whether that host and its network are up", human.Duration(p.Timeout), strings.Join(names, ", ")))
			return
		case last:
			return
		}
	}
}

// heard is the sign of life of one rank, or the error that came in place of its sign.
type heard struct {
	rank int
	err  error
}

// round sends this rank's sign and waits for the others' signs. last reports that all ranks are leaving. silent lists
// the ranks whose signs did not come within Timeout.
func (p *heartbeat) round() (last bool, silent []int, err error) {
	n, me := p.w.Size(), p.w.Rank()
	own := staying
	select {
	case <-p.leaving:
		own = going
	default:
	}
	// a late sign is written to memory after its round has ended, so each round has its own memory
	send, signs, came := make([]byte, n-1), make([]byte, n), make(chan heard, n)
	for i := range send {
		send[i] = own
	}
	signs[me] = own
	for r := range n {
		sends, receives, from := make([]int, n), make([]int, n), []byte(nil)
		into := signs[:0]
		if r == me {
			for to := range sends {
				sends[to] = 1
			}
			sends[me], from = 0, send
		} else {
			receives[r], into = 1, signs[r:r+1]
		}
		p.c.AllToAllV(from, sends, into, receives, func(err error) { came <- heard{r, err} })
	}
	missing := make([]bool, n)
	for r := range missing {
		missing[r] = true
	}
	for late, left := p.After(p.Timeout), n; left > 0; {
		var h heard
		select {
		case h = <-came:
		default:
			select {
			case h = <-came:
			case <-p.gone:
				return false, nil, errEnding
			case <-late:
				for r, m := range missing {
					if m && r != me {
						silent = append(silent, r)
					}
				}
				return false, silent, nil
			}
		}
		if h.err != nil {
			return false, nil, h.err
		}
		missing[h.rank] = false
		left--
	}
	for _, s := range signs {
		if s != going {
			return false, nil, nil
		}
	}
	return true, nil, nil
}
