package actors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"mt/data"
	"mt/device"
	"mt/internal/accounts"
	"mt/layers"
)

// This file has what layers with experts need beyond what other layers need: a state on
// the device, which one of them at a time works in, and what of it is copied to the host.

// experts is the state of the layer with experts that is at work, for all tokens of a
// batch, and the host memory for what of it is copied there.
type experts struct {
	mem   device.Mem
	state layers.MoEState // of the program in progress
	ready device.Event    // the pairs are sorted by expert
	// These are on the host. offsets and probs get, of a layer, where each expert's pairs begin
	// and the sums of probabilities; from counts the counts of all lanes go to the device.
	offsets, probs, counts []byte
}

func (r *lane) allocExperts() (err error) {
	bytes := r.plan.ExpertStateBytes()
	if bytes == 0 {
		return nil
	}
	x := &r.experts
	if x.mem, err = r.alloc(accounts.Activations, bytes); err != nil {
		return err
	}
	if x.ready, err = r.event(); err != nil {
		return err
	}
	staging, err := r.allocHost(r.plan.RoutingBytes())
	if err != nil {
		return err
	}
	n, places := r.plan.Experts, r.plan.Spec.Config.AllExperts()+1
	x.offsets, x.probs, x.counts = staging[:4*places], staging[4*places:4*(places+n)], staging[4*(places+n):4*(places+2*n)]
	return nil
}

// beginExperts makes the state ready for a program.
func (r *lane) beginExperts(p *Pass) {
	x := &r.experts
	if x.mem.Bytes == 0 {
		return
	}
	x.state = r.ops.BindMoE(x.mem, int(p.Batch.Tokens), !r.plan.EvalOnly)
	if r.balances(p) {
		r.compute.Zero(x.state.Counts.Mem())
	}
}

// balances says whether a pass has the loss that balances the experts' load.
func (r *lane) balances(p *Pass) bool {
	return !p.Eval && r.plan.Balances()
}

// auxWeight is the factor of Σ_e Counts_e·ProbSum_e in the loss that balances the
// load, over all tokens of a step and all layers with experts: the coefficient
// times the number of experts, with Counts and ProbSum as means over as many
// tokens as went through a router. Source: arXiv:2101.03961, as Transformers'
// load_balancing_loss_func computes it over the layers' concatenated logits.
func (r *lane) auxWeight(b *data.Batch) float64 {
	n := float64(r.plan.ExpertLayers()) * float64(b.AllTokens())
	return r.plan.Spec.Config.RouterAuxLossCoef * float64(r.plan.Experts) / (n * n)
}

// auxScale, times an expert's count, is the gradient of that loss with respect to every
// token's probability of the expert; 0 where the model has no such loss. The number of
// supervised tokens has no part in it: the loss is added once a step. A batch that stands in
// for rows has no part in the loss.
func (r *lane) auxScale(b *data.Batch) float32 {
	if !r.plan.Balances() || standsIn(b) {
		return 0
	}
	return float32(r.auxWeight(b))
}

// offloadRouting copies to the host where each expert's pairs begin and, where the loss balances
// the load, the sums of probabilities.
type offloadRouting struct {
	p     *Pass
	Layer int
}

func (e offloadRouting) start(r *lane, w work) error {
	x, s := &r.experts, r.copying(r.d2h, e)
	s.Wait(x.ready)
	s.CopyD2H(x.offsets, x.state.Offsets.Mem())
	if r.balances(e.p) {
		s.CopyD2H(x.probs, x.state.ProbSum.Mem())
	}
	s.Notify(r.landed(w, fmt.Sprintf("offload the routing of %s step %d", r.names[e.Layer], e.p.Step), func() any { return r.landedRouting(e.p) }))
	return nil
}

// routed is the result of offloadRouting: Offsets and Probs of RoutingLanded.
type routed struct {
	offsets []int32
	probs   []float32
}

// landedRouting reads what offloadRouting has copied.
func (r *lane) landedRouting(p *Pass) (out routed) {
	if r.o.predicted != nil {
		out.offsets = r.evenOffsets(int(p.Batch.Tokens))
		if r.balances(p) {
			out.probs = make([]float32, r.plan.Experts)
		}
		return out
	}
	x := &r.experts
	for at := 0; at < len(x.offsets); at += 4 {
		out.offsets = append(out.offsets, int32(binary.LittleEndian.Uint32(x.offsets[at:])))
	}
	for at := 0; at < len(x.probs) && r.balances(p); at += 4 {
		out.probs = append(out.probs, math.Float32frombits(binary.LittleEndian.Uint32(x.probs[at:])))
	}
	return out
}

// balancing says whether the loss has a part that balances the experts' load, which needs the
// routing of all layers before the backward. No layer's: it has none.
type balancing struct {
	layers  int  // with experts, on all lanes
	lanes   int  // each hears of the routing of all these layers
	several bool // the load is that of several ranks, which agree on it: see agreeLoad
}

// expertLoad is what the experts have to bear in a pass, by expert, in all layers together.
type expertLoad struct {
	Counts []int32   // how many pairs it has
	Probs  []float64 // the sum of its probabilities
}

// load sums up the routing of all layers, in their order.
func (r routing) load() (sum expertLoad) {
	for _, layer := range slices.Sorted(maps.Keys(r)) {
		at := r[layer]
		one := expertLoad{Counts: make([]int32, len(at.Probs)), Probs: make([]float64, len(at.Probs))}
		for e, p := range at.Probs {
			one.Counts[e], one.Probs[e] = at.Offsets[e+1]-at.Offsets[e], float64(p)
		}
		sum = sum.plus(one)
	}
	return sum
}

// plus adds two loads; one of the zero value is none.
func (l expertLoad) plus(other expertLoad) expertLoad {
	if l.Counts == nil {
		return other
	}
	for e := range l.Counts {
		l.Counts[e] += other.Counts[e]
		l.Probs[e] += other.Probs[e]
	}
	return l
}

// product is Σ counts·probabilities over the experts.
func (l expertLoad) product() (sum float64) {
	for e, n := range l.Counts {
		sum += float64(n) * l.Probs[e]
	}
	return sum
}

// knowsLoad says whether it is known what the experts of all layers have to bear, on all ranks.
func (c *computeCore) knowsLoad() bool {
	if c.balance.several {
		return c.load != nil
	}
	return len(c.routed) == c.balance.layers
}

// wholeLoad is that load.
func (c *computeCore) wholeLoad() expertLoad {
	if c.balance.several {
		return *c.load
	}
	return c.routed.load()
}

// auxLoss is the balancing loss of p, of a load as LossComputed has it; 0 where p has none.
func (r *lane) auxLoss(p *Pass, load float64) float64 {
	if !r.balances(p) {
		return 0
	}
	return r.auxWeight(p.Batch) * load
}

// loadCounts enqueues the copy of the experts' counts in all layers, on all ranks, to the device,
// which has counted those of its own lane.
func (r *lane) loadCounts(counts []int32) {
	x := &r.experts
	for e, n := range counts {
		if r.o.predicted == nil { // else there is no memory to write to
			binary.LittleEndian.PutUint32(x.counts[4*e:], uint32(n))
		}
	}
	r.compute.CopyH2D(x.state.Counts.Slice(0, int64(r.plan.Experts)).Mem(), x.counts)
}

// expertTraffic counts the experts' tiles that were copied. It counts by program, because
// tiles of a step may travel while the step before is still at work.
type expertTraffic struct {
	mu   sync.Mutex
	prog map[int]traffic
}

type traffic struct{ tiles, bytes int64 }

func (x *expertTraffic) add(prog int, bytes int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.prog == nil {
		x.prog = map[int]traffic{}
	}
	t := x.prog[prog]
	x.prog[prog] = traffic{tiles: t.tiles + 1, bytes: t.bytes + bytes}
}

// read returns what travelled for a program that is done, and forgets that program and
// all before it.
func (x *expertTraffic) read(prog int) traffic {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.prog[prog]
	maps.DeleteFunc(x.prog, func(p int, _ traffic) bool { return p <= prog })
	return t
}

// evenOffsets are the Offsets of RoutingLanded where every expert gets as many of a batch's
// pairs as any other, or one more; a shared one has all tokens.
func (r *lane) evenOffsets(tokens int) []int32 {
	c, pairs := r.plan.Spec.Config, int64(tokens)*int64(r.plan.Spec.Config.NumExpertsPerTok)
	out := make([]int32, c.AllExperts()+1)
	for e := range out {
		out[e] = int32(int64(e) * pairs / int64(r.plan.Experts))
	}
	if c.SharedSize > 0 {
		out[c.AllExperts()] = int32(pairs) + int32(tokens)
	}
	return out
}
