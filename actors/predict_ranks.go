package actors

import (
	"fmt"

	"mt/base/cluster"
	"mt/device/virtual"
)

// This file predicts a run with several ranks. All ranks are assumed to do the same at the same
// time, so only one rank is predicted. Its exchanges take the network's time for their bytes. The
// predicted rank never waits for another.

// predictedWorld is the cluster.World of a predicted rank: the group of all ranks, of which only this one exists.
type predictedWorld struct{ p *prediction }

// Rank implements cluster.World: it returns the rank that the plan is for.
func (w predictedWorld) Rank() int { return w.p.plan.Rank }

// Size implements cluster.World.
func (w predictedWorld) Size() int { return w.p.plan.Ranks }

// Hosts implements cluster.World. Each rank has its own host.
func (w predictedWorld) Hosts() (out []string) {
	for r := range w.Size() {
		out = append(out, fmt.Sprintf("host %d", r))
	}
	return out
}

// NewComm implements cluster.World.
func (w predictedWorld) NewComm(string) (cluster.Comm, error) { return predictedComm(w), nil }

// Abort implements cluster.World. It does nothing, because a prediction has no other ranks to tell of an error.
func (w predictedWorld) Abort(string) {}

// Close implements cluster.World.
func (w predictedWorld) Close() error { return nil }

// predictedComm is a cluster.Comm that moves nothing. Its exchanges take as long as the predicted network needs for
// their bytes.
type predictedComm struct{ p *prediction }

// AllGather implements cluster.Comm. All other ranks are assumed to send the same value.
func (c predictedComm) AllGather(value []byte, done func([][]byte, error)) {
	values := make([][]byte, c.p.plan.Ranks)
	for r := range values {
		values[r] = append([]byte(nil), value...)
	}
	c.exchange(int64(len(value)*(len(values)-1)), func() { done(values, nil) })
}

// AllGatherV implements cluster.Comm. It takes the network's time to receive the other ranks'
// parts.
func (c predictedComm) AllGatherV(data []byte, counts []int, done func(error)) {
	c.exchange(int64(len(data)-counts[c.p.plan.Rank]), func() { done(nil) })
}

// AllToAllV implements cluster.Comm. It takes the network's time for the larger of the bytes to
// send to, and to receive from, the other ranks.
func (c predictedComm) AllToAllV(_ []byte, sendCounts []int, _ []byte, recvCounts []int, done func(error)) {
	var out, in int64
	for r := range sendCounts {
		if r != c.p.plan.Rank {
			out += int64(sendCounts[r])
			in += int64(recvCounts[r])
		}
	}
	c.exchange(max(out, in), func() { done(nil) })
}

// exchange calls done after the network's time to send this many bytes and at the same time receive equally many. Both
// directions pass through host memory and use one core.
func (c predictedComm) exchange(bytes int64, done func()) {
	m := c.p.machine
	moving := float64(bytes) / (m.Network.Rate * 1e9)
	w := virtual.Work{Seconds: m.Network.Latency/1e6 + moving}
	if w.Seconds > 0 {
		w.Share[virtual.Network] = moving / w.Seconds
		w.Share[virtual.HostMemory] = min(1, 2*float64(bytes)/w.Seconds/(m.Host.Bandwidth*1e9))
	}
	w.Share[virtual.Cores] = 1 / float64(m.Host.Cores)
	c.p.clock.Start(w, done)
}
