package team

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

// UsualBeat is that of every run. A rank gives its signs on a goroutine of its own, so a step may
// take as long as it wants.
var UsualBeat = settings.Beat{Every: 5 * time.Second, Patience: 60 * time.Second, Ending: 5 * time.Second, After: time.After}

// pulse ends the run where a rank is silent. Ranks tell each other in rounds, that begin every so
// often, and in a round each rank's sign is an operation of its own: that of a silent rank is
// what stays. Between rounds nothing is under way.
type pulse struct {
	w cluster.World
	c cluster.Comm
	settings.Beat

	fail          func(reason string) // ends the run
	leaving, gone chan struct{}
	leaves, goes  sync.Once
	ended         chan struct{}
}

// startPulse begins to give and await signs of life. fail gets which ranks are silent.
func startPulse(w cluster.World, c cluster.Comm, b settings.Beat, fail func(reason string)) *pulse {
	p := &pulse{w: w, c: c, Beat: b, fail: fail, leaving: make(chan struct{}), gone: make(chan struct{}), ended: make(chan struct{})}
	go p.run()
	return p
}

// stop ends the pulse when all ranks have stopped it, and waits for that.
func (p *pulse) stop() {
	p.leaves.Do(func() { close(p.leaving) })
	<-p.ended
}

// quit ends the pulse of a rank that is about to end the run.
func (p *pulse) quit() {
	p.goes.Do(func() { close(p.gone) })
}

// errEnding is the error of a round that is cut off.
var errEnding = errors.New("the run is being ended")

// The signs.
const (
	staying byte = iota
	going
)

func (p *pulse) run() {
	defer close(p.ended)
	for {
		select {
		case <-p.After(p.Every):
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
			p.fail(fmt.Sprintf("no sign of life for %s of %s: look whether that host and its network are up", human.Duration(p.Patience), strings.Join(names, ", ")))
			return
		case last:
			return
		}
	}
}

// heard is a sign that has come, or the error in place of it.
type heard struct {
	rank int
	err  error
}

// round gives a sign and waits for those of the others. last says that all ranks are going; silent
// are the ranks whose signs have not come.
func (p *pulse) round() (last bool, silent []int, err error) {
	n, me := p.w.Size(), p.w.Rank()
	own := staying
	select {
	case <-p.leaving:
		own = going
	default:
	}
	// Signs that do not come in time are written to later: each round has its own memory.
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
	for late, left := p.After(p.Patience), n; left > 0; {
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
