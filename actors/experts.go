package actors

import (
	"encoding/binary"
	"maps"
	"math"
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
	// offsets and load are on the host. offsets gets where each expert's pairs begin,
	// load the counts and the sums of probabilities over a pass.
	offsets, load []byte
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
	n := r.plan.Experts
	x.offsets, x.load = staging[:4*(n+1)], staging[4*(n+1):4*(3*n+1)]
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
		r.compute.Zero(x.state.ProbSum.Mem())
	}
}

// balances says whether a pass has the loss that balances the experts' load.
func (r *lane) balances(p *Pass) bool {
	return !p.Eval && r.plan.Balances()
}

// auxWeight is the factor of Σ_e Counts_e·ProbSum_e in the loss that balances the
// load, over all tokens of a batch and all layers with experts: the coefficient
// times the number of experts, with Counts and ProbSum as means over as many
// tokens as went through a router. Source: arXiv:2101.03961, as Transformers'
// load_balancing_loss_func computes it over the layers' concatenated logits.
func (r *lane) auxWeight(b *data.Batch) float64 {
	n := float64(r.plan.ExpertLayers()) * float64(b.Tokens)
	return r.plan.Spec.Config.RouterAuxLossCoef * float64(r.plan.Experts) / (n * n)
}

// auxScale, times an expert's count, is the gradient of that loss with respect to every
// token's probability of the expert; 0 where the model has no such loss. The number of
// supervised tokens has no part in it: the loss is added once a step.
func (r *lane) auxScale(b *data.Batch) float32 {
	if !r.plan.Balances() {
		return 0
	}
	return float32(r.auxWeight(b))
}

// offloadRouting enqueues the copy of where each expert's pairs begin.
func (r *lane) offloadRouting(offloadRouting) {
	r.d2h.Wait(r.experts.ready)
	r.d2h.CopyD2H(r.experts.offsets, r.experts.state.Offsets.Mem())
}

// landedOffsets reads what offloadRouting has copied: the Offsets of RoutingLanded.
func (r *lane) landedOffsets(p *Pass) any {
	if r.o.predicted != nil {
		return r.evenOffsets(int(p.Batch.Tokens))
	}
	out := make([]int32, len(r.experts.offsets)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(r.experts.offsets[4*i:]))
	}
	return out
}

// offloadLoad enqueues the copies that auxLoss reads: the counts and the sums of
// probabilities of p.
func (r *lane) offloadLoad(p *Pass) {
	if !r.balances(p) {
		return
	}
	x, n := &r.experts, 4*r.plan.Experts
	r.d2h.CopyD2H(x.load[:n], x.state.Counts.Mem())
	r.d2h.CopyD2H(x.load[n:], x.state.ProbSum.Mem())
}

// auxLoss is the balancing loss of p, of which offloadLoad's copies have landed; 0 where
// p has none.
func (r *lane) auxLoss(p *Pass) float64 {
	if !r.balances(p) {
		return 0
	}
	var sum float64
	counts, probs := r.experts.load[:4*r.plan.Experts], r.experts.load[4*r.plan.Experts:]
	for i := 0; i < len(counts); i += 4 {
		count := int32(binary.LittleEndian.Uint32(counts[i:]))
		sum += float64(count) * float64(math.Float32frombits(binary.LittleEndian.Uint32(probs[i:])))
	}
	return r.auxWeight(p.Batch) * sum
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
// pairs as any other, or one more.
func (r *lane) evenOffsets(tokens int) []int32 {
	pairs := int64(tokens) * int64(r.plan.Spec.Config.NumExpertsPerTok)
	out := make([]int32, r.plan.Experts+1)
	for e := range out {
		out[e] = int32(int64(e) * pairs / int64(r.plan.Experts))
	}
	return out
}
