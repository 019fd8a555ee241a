package settings

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"mt/host/optim"
	"mt/plan/rates"
)

// ThrottleVariable is the environment variable that slows a run down.
const ThrottleVariable = "MT_THROTTLE"

// Throttle limits the rates of a run, in bytes per second, so that a fast machine waits like a slow one; 0 means no
// limit.
type Throttle struct {
	Link    float64 // copies between the host and the CPU device, each way
	Updates float64 // reads and writes of the optimizer's element-wise updates; Muon's matrix updates are not slowed down
}

// ThrottleFromEnv parses the environment variable: "link=400MB/s updates=2GB/s".
func ThrottleFromEnv() (Throttle, error) {
	l, err := parseThrottle(os.Getenv(ThrottleVariable))
	if err != nil {
		err = fmt.Errorf("%s: %w", ThrottleVariable, err)
	}
	return l, err
}

// parseThrottle parses text such as "link=400MB/s updates=2GB/s". Empty text gives a Throttle without limits.
func parseThrottle(text string) (l Throttle, err error) {
	for _, word := range strings.Fields(text) {
		what, rate, _ := strings.Cut(word, "=")
		n, err := humanize.ParseBytes(strings.TrimSuffix(rate, "/s"))
		if err != nil || n == 0 {
			return l, fmt.Errorf("%q: want link=RATE or updates=RATE with a rate such as 400MB/s", word)
		}
		switch what {
		case "link":
			l.Link = float64(n)
		case "updates":
			l.Updates = float64(n)
		default:
			return l, fmt.Errorf("%q: there is link and updates", word)
		}
	}
	return l, nil
}

// Optimizer returns o, slowed down so that updates keep to the limit l.Updates.
func (l Throttle) Optimizer(o optim.Optimizer) optim.Optimizer {
	if l.Updates <= 0 {
		return o
	}
	return slowOptimizer{o, l.Updates}
}

type slowOptimizer struct {
	optim.Optimizer
	limit float64
}

// At implements optim.Optimizer. It starts the clock by which Step slows the update down.
func (s slowOptimizer) At(r optim.Rate) optim.Update {
	return &slowUpdate{Update: s.Optimizer.At(r), limit: s.limit, began: time.Now()}
}

// slowUpdate is an update of one layer that is slowed down to the limit in bytes per second.
type slowUpdate struct {
	optim.Update
	limit float64
	began time.Time
	moved atomic.Int64 // bytes so far
}

// Step implements optim.Update. It returns no earlier than the limit allows for the bytes moved since the update
// began.
func (u *slowUpdate) Step(unit optim.Unit, w optim.Weight, planes []optim.State, g optim.Grad) {
	u.Update.Step(unit, w, planes, g)
	bytes := int64(4*2 + 4) // read and write the weight, read the gradient
	for range planes {
		bytes += 2 * 4
	}
	moved := u.moved.Add(unit.N * bytes)
	time.Sleep(time.Until(u.began.Add(time.Duration(float64(moved) / u.limit * 1e9))))
}

// Machine returns the machine m with its rates lowered to the limits of l, for predictions.
func (l Throttle) Machine(m *rates.Machine) *rates.Machine {
	slower := func(rate *float64, cores *float64, limit float64) {
		if limit = limit / 1e9; limit > 0 && limit < *rate {
			*cores *= limit / *rate
			*rate = limit
		}
	}
	out := m.Changed(func(_ *rates.Device, link *rates.Link) {
		upCores, downCores, peerCores := link.Cores, link.Cores, link.Cores
		slower(&link.Up, &upCores, l.Link)
		slower(&link.Down, &downCores, l.Link)
		slower(&link.Peer, &peerCores, l.Link)
		link.Cores = max(upCores, downCores) // copies to another device use the same cores
	})
	if out.Host.Update.Cores == 0 {
		out.Host.Update.Cores = float64(out.Host.Cores)
	}
	slower(&out.Host.Update.Rate, &out.Host.Update.Cores, l.Updates)
	return out
}
