package actors

import (
	"encoding/binary"
	"fmt"
	"math"

	"mt/data"
)

// This file is the Conductor's part for several ranks. All ranks plan the same passes in the same
// order. At the end of each pass they exchange their sums of losses, stop requests and results of a
// diagnosis (the search for the first non-finite layer output). Each rank derives the same next
// action from these values. Nothing that decides the next action may depend on when a message
// arrives, so the exchange waits for the updates of the previous step. A diagnosis that these
// updates require begins at the end of a pass, or when no pass is left.

// agreePass is the task of sending this rank's result of pass p (Own) to all ranks and receiving theirs.
type agreePass struct {
	p   *Pass
	Own passEnd
}

// passEnd is one rank's result of a pass, which the ranks exchange.
type passEnd struct {
	Sum float64 // sum of losses, in nats
	// Ahead is the sum of the losses of multi-token prediction.
	Ahead float64
	// Pairs has the sums over the preference pairs of the pass; zero if the run does not train on pairs.
	Pairs PairSums
	Stop  bool // the rank was asked to stop
	// Layer and MicroBatch are the place of the first non-finite output in a diagnosis. Layer −1: none.
	Layer, MicroBatch int
}

// passAgreed tells the Conductor that all ranks have exchanged their results of a pass. It carries
// the results.
type passAgreed struct {
	Landed LossLanded // this rank's
	All    []passEnd  // by rank
}

func (m passAgreed) withResult(result any) message {
	m.All = result.([]passEnd)
	return m
}

// agree starts the ranks' agreement on a pass when this rank's losses have landed. It returns nil before, and while
// updates of the previous step are pending.
func (c *conductorCore) agree() []effect {
	if c.landed == nil || c.agreeing || c.updated < c.program.Version {
		return nil
	}
	c.agreeing = true
	own := passEnd{Sum: c.landed.Sum, Ahead: c.landed.Ahead, Stop: c.askedToStop, Layer: -1}
	if c.landed.Pairs != nil {
		own.Pairs = *c.landed.Pairs
	}
	if c.program.Check {
		own.Layer, own.MicroBatch = c.diagnosis.layer, c.diagnosis.microBatch
	}
	return []effect{work{do: agreePass{p: c.program, Own: own}, done: []send{{conductorID, passAgreed{Landed: *c.landed}}}}}
}

// agreed handles the end of the ranks' agreement on a pass. It adds up all ranks' sums of losses, notes their stop
// requests and results of a diagnosis, and continues as after a pass of a run with one rank (lossLanded).
func (c *conductorCore) agreed(m passAgreed) (out []effect) {
	c.landed, c.agreeing = nil, false
	landed := m.Landed
	landed.Sum, landed.Ahead = 0, 0
	if landed.Pairs != nil {
		landed.Pairs = &PairSums{}
	}
	if c.program.Check {
		c.diagnosis.layer = -1
	}
	stop := false
	for rank, end := range m.All {
		landed.Sum, landed.Ahead = landed.Sum+end.Sum, landed.Ahead+end.Ahead
		if landed.Pairs != nil {
			landed.Pairs.add(end.Pairs)
		}
		stop = stop || end.Stop
		if c.program.Check {
			c.diagnosis.addRank(rank, end)
		}
	}
	if stop && !c.stop {
		c.stop = true
		out = append(out, work{do: stopAgreed{}})
	}
	if !c.program.Check {
		c.startDueDiagnosis()
	}
	return append(out, c.lossLanded(landed)...)
}

// agreeLoad is the task of summing the experts' load in pass p over all ranks. Own is the load on this rank: by expert,
// the number of (token, choice) pairs and the sum of router probabilities. The load-balancing loss and its backward
// need the sum.
type agreeLoad struct {
	p   *Pass
	Own expertLoad
}

// agreeLoad starts the sum of the experts' load over all ranks. It returns nil until the routing
// (each expert's number of tokens) of all layers of this rank is on the host. Like agree, it waits
// for the updates of the previous step, because these may end the run on all ranks.
func (c *conductorCore) agreeLoad() []effect {
	if c.balance.layers == 0 || c.program.Eval || c.loading || len(c.routed) < c.balance.layers || c.updated < c.program.Version {
		return nil
	}
	c.loading = true
	own := c.routed.load()
	if isStandIn(c.program.Batch) {
		own = expertLoad{Counts: make([]int32, len(own.Counts)), Probs: make([]float64, len(own.Probs))}
	}
	w := work{do: agreeLoad{p: c.program, Own: own}}
	for lane := range laneID(c.balance.lanes) {
		w.done = append(w.done, send{lane.compute(), LoadAgreed{Prog: c.program.Seq}})
	}
	return []effect{w}
}

// isStandIn reports whether b stands in for the batch of a rank that got no row of the global batch. The rank computes
// b, because all ranks must do the same operations. The losses and gradients of b do not count.
func isStandIn(b *data.Batch) bool { return b.Ranks != nil && b.Ranks.StandIn }

// addRank adds the result of a rank to a diagnosis, which looks for the first non-finite output. The lowest layer wins,
// then the lowest rank.
func (d *diagnosis) addRank(rank int, end passEnd) {
	if end.Layer >= 0 && (d.layer < 0 || end.Layer < d.layer) {
		d.layer, d.microBatch, d.rank = end.Layer, end.MicroBatch, rank
	}
}

// stopAgreed is the task of calling Options.Stopping, which tells the caller that the ranks have agreed to stop.
type stopAgreed struct{}

// startDueDiagnosis starts the diagnosis in dueDiagnosis, unless another one is in progress. A
// diagnosis repeats a batch's forward and looks for the first non-finite output. Without a waiting
// diagnosis it does nothing.
func (c *conductorCore) startDueDiagnosis() {
	if c.diagnosis == nil {
		c.diagnosis, c.dueDiagnosis = c.dueDiagnosis, nil
	}
}

// passesLeft reports whether another pass will be planned, whatever the results of pending updates.
func (c *conductorCore) passesLeft() bool {
	return c.program != nil || c.eval.running || !c.closing && c.planned < c.end()
}

func (e agreePass) start(r *lane, w work) error {
	own := e.encode()
	what := fmt.Sprintf("agree on %v", e.p)
	r.allGather(conductorID, w, r.comm.agreement, what, own, func(values [][]byte) (any, error) {
		var all []passEnd
		for rank, v := range values {
			if other, this := describe(v), describe(own); other != this {
				return nil, fmt.Errorf("rank %d is at the end of %s, and this one, rank %d, of %s", rank, other, r.comm.rank, this)
			}
			all = append(all, decodeEnd(v[24:]))
		}
		return all, nil
	})
	return nil
}

func (e agreeLoad) start(r *lane, w work) error {
	what := fmt.Sprintf("agree on the experts' load in %v", e.p)
	r.allGather(conductorID, w, r.comm.balance, what, e.encode(), func(values [][]byte) (any, error) {
		var sum expertLoad
		for rank, v := range values {
			if other := readInt(v); other != e.p.Seq {
				return nil, fmt.Errorf("rank %d has routed pass %d, and this one, rank %d, pass %d", rank, other, r.comm.rank, e.p.Seq)
			}
			sum = sum.plus(decodeLoad(v[8:]))
		}
		return sum, nil
	})
	return nil
}

// encode returns e as bytes for the other ranks: the pass number, then for each expert its number of pairs and its sum
// of router probabilities. Each value has 8 bytes.
func (e agreeLoad) encode() (b []byte) {
	b = binary.LittleEndian.AppendUint64(b, uint64(int64(e.p.Seq)))
	for i, n := range e.Own.Counts {
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(n)))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(e.Own.Probs[i]))
	}
	return b
}

// decodeLoad reads what agreeLoad.encode has written after the pass number: a count and a sum of probabilities for each
// expert.
func decodeLoad(v []byte) (l expertLoad) {
	for at := 0; at < len(v); at += 16 {
		l.Counts = append(l.Counts, int32(readInt(v[at:])))
		l.Probs = append(l.Probs, math.Float64frombits(binary.LittleEndian.Uint64(v[at+8:])))
	}
	return l
}

// encode returns e as bytes for the other ranks: the number and kind of the pass, then this rank's passEnd.
func (e agreePass) encode() (b []byte) {
	kind, stop := 0, 0
	switch {
	case e.p.Check:
		kind = 2
	case e.p.Eval:
		kind = 1
	}
	if e.Own.Stop {
		stop = 1
	}
	for _, n := range []int{e.p.Seq, e.p.Step, kind, stop, e.Own.Layer, e.Own.MicroBatch} {
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(n)))
	}
	for _, sum := range []float64{e.Own.Sum, e.Own.Ahead} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(sum))
	}
	return e.Own.Pairs.append(b)
}

// describe names the pass to which v, a result of agreePass.encode, belongs. The name appears in the error if ranks are
// in different passes.
func describe(v []byte) string {
	kind := readInt(v[16:])
	if kind < 0 || kind > 2 {
		return fmt.Sprintf("pass %d of kind %d", readInt(v), kind)
	}
	return fmt.Sprintf("pass %d, %s step %d", readInt(v), [...]string{"of", "an evaluation after", "a diagnosis after"}[kind], readInt(v[8:]))
}

// decodeEnd reads the passEnd in v, a result of agreePass.encode without the fields that identify the pass.
func decodeEnd(v []byte) passEnd {
	sum := func(at int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(v[at:])) }
	return passEnd{Stop: readInt(v) == 1, Layer: readInt(v[8:]), MicroBatch: readInt(v[16:]), Sum: sum(24), Ahead: sum(32), Pairs: decodePairs(v[40:])}
}
