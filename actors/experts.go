package actors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"mt/base/accounts"
	"mt/data"
	"mt/device"
	"mt/layers"
	"mt/layers/schedule"
)

// This file has the parts of a run that only layers with experts need. All these layers use one
// MoEState on the device (each token's chosen experts, and intermediate results, of one layer) in
// turn. The numbers of tokens that each expert gets (the routing) are also copied to the host.

// experts is the memory of the current layer with experts: its MoEState on the device, for all tokens of a batch, and
// host memory for its routing.
type experts struct {
	mem   device.Mem
	state layers.MoEState // of the current program
	ready device.Event    // recorded when the pairs are sorted by expert
	// balances: the current pass adds the load-balancing loss. auxScale is the result of lane.auxScale for its batch.
	balances bool
	auxScale float32
	// Host memory. The routing of a layer is copied to offsets (the first pair of each expert) and probs (the expert's
	// sum of router probabilities). The device reads counts: the pairs of each expert over all lanes and ranks.
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
	r.hooks = append(r.hooks, expertLane{r})
	x.offsets, x.probs, x.counts = staging[:4*places], staging[4*places:4*(places+n)], staging[4*(places+n):4*(places+2*n)]
	return nil
}

// expertLane is the laneHook of a lane with experts: it does their work on the device around the launches.
type expertLane struct{ *lane }

// begin prepares the experts' state for a program: its views of device memory, and the factor of the balancing loss.
func (r expertLane) begin(p *Pass) {
	x := &r.experts
	x.state = r.ops.BindMoE(x.mem, int(p.Batch.Tokens), !r.plan.EvalOnly)
	x.balances, x.auxScale = r.balances(p), r.auxScale(p.Batch)
	if x.balances {
		r.compute.Zero(x.state.Counts.Mem())
	}
}

// balances reports whether a pass has the load-balancing loss.
func (r *lane) balances(p *Pass) bool {
	return !p.Eval && r.plan.Balances()
}

// auxWeight returns the factor of Σ_e Counts_e·ProbSum_e in the balancing loss of a step. It is the coefficient times
// the number of experts, divided by n². Here n is tokens times layers with experts: Counts and ProbSum enter as means
// over n routed tokens. Source: arXiv:2101.03961, as Transformers' load_balancing_loss_func computes it over the
// layers' concatenated logits.
func (r *lane) auxWeight(b *data.Batch) float64 {
	n := float64(r.plan.ExpertLayers()) * float64(b.AllTokens())
	return r.plan.Spec.Config.RouterAuxLossCoef * float64(r.plan.Experts) / (n * n)
}

// auxScale returns a factor for the backward of the load-balancing loss. The factor times an expert's count is the
// loss's gradient with respect to each token's probability of that expert. The number of supervised tokens is not in
// the factor, because the loss is added once for each step, not for each token. It is 0 for a model without balancing
// loss, and for a batch that stands in for missing rows.
func (r *lane) auxScale(b *data.Batch) float32 {
	if !r.plan.Balances() || isStandIn(b) {
		return 0
	}
	return float32(r.auxWeight(b))
}

// offloadRouting is the task of copying a layer's routing to the host: the index of each expert's first (token, choice)
// pair and, for the balancing loss, each expert's sum of router probabilities.
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

// routed is the result of offloadRouting. The message RoutingLanded carries both fields.
type routed struct {
	offsets []int32
	probs   []float32
}

// landedRouting returns the routing that offloadRouting has copied to host memory. A prediction has no routing; it
// assumes that all experts get equally many tokens.
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

// expertHook is the Prefetcher's hook for tiles of experts. If the program fetches experts on demand, a tile waits for
// the routing and is fetched only if a token needs the expert.
type expertHook struct{ c *prefetcherCore }

func (w expertHook) take(msg message) ([]effect, bool) {
	m, ok := msg.(RoutingLanded)
	if ok {
		if s := w.c.program(m.Prog); s != nil {
			s.routed[m.Layer] = m
		}
	}
	return nil, ok
}

func (w expertHook) ready(s *prefetchState, v schedule.Visit) (Cause, bool) {
	_, known := s.routed[v.Layer]
	return StallRouting, known || !s.p.OnDemand || v.Stage != schedule.Expert
}

// idle reports whether no token goes to v's expert. Compute then needs no weights for the visit.
func (w expertHook) idle(s *prefetchState, v schedule.Visit) bool {
	return s.p.OnDemand && s.routed.idle(v)
}

func (w expertHook) begin(g *grantedTile) ([]effect, bool) {
	if g.to == schedule.Expert {
		g.task = fetchExpert{g.copy}
	}
	return nil, false
}

// fetchExpert is the task of fetching the tile of an expert and counting its bytes.
type fetchExpert struct{ fetchWeights }

func (e fetchExpert) start(r *lane, _ work) error {
	defer r.copying(r.h2d, e.fetchWeights).end()
	moved, err := r.fetch(e.fetchWeights)
	if moved > 0 {
		r.expertTraffic.add(e.Prog, moved)
	}
	return err
}

// balancing describes the load-balancing loss of experts. The backward with this loss cannot begin before the routing
// of all layers is known. layers 0: the run has no such loss.
type balancing struct {
	layers      int  // layers with experts, on all lanes
	lanes       int  // lanes, each of which needs the routing of all layers
	distributed bool // the load is summed over several ranks, see agreeLoad
}

// expertLoad is, by expert, how much a pass has used it, summed over all layers.
type expertLoad struct {
	Counts []int32   // pairs
	Probs  []float64 // sums of probabilities
}

// load adds up the routings of all layers, in layer order, to the load of each expert.
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

// plus returns the sum of two loads, expert by expert. The zero value is an empty load.
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

// product returns the sum over the experts of their counts times their probabilities. This sum
// times lane.auxWeight is the load-balancing loss.
func (l expertLoad) product() (sum float64) {
	for e, n := range l.Counts {
		sum += float64(n) * l.Probs[e]
	}
	return sum
}

// routing has, by layer, the routings that have landed on the host: how many tokens of the pass go
// to each expert.
type routing map[int]RoutingLanded

// pairs returns n, the number of (token, choice) pairs that the router has sent to v's expert. known: the routing of
// v's layer has landed; otherwise n is 0.
func (r routing) pairs(v schedule.Visit) (known bool, n int) {
	landed, known := r[v.Layer]
	if known {
		n = int(landed.Offsets[v.Part] - landed.Offsets[v.Part-1]) // part 0 is the router
	}
	return known, n
}

// idle reports whether v visits an expert to which the router has sent no token. It is false while the routing is not
// known.
func (r routing) idle(v schedule.Visit) bool {
	if v.Stage != schedule.Expert {
		return false
	}
	known, pairs := r.pairs(v)
	return known && pairs == 0
}

// expertLaunches is Compute's hook for layers with experts. It holds launches back until the routing that they need is
// on the host.
type expertLaunches struct {
	lane    laneID
	balance balancing
	routed  routing     // of the current program
	load    *expertLoad // agreed by several ranks; nil: not yet
	counted bool        // the counts of all lanes and ranks were sent to the device for the backward
}

// admit accepts routings and the load that the ranks have agreed on. The routings of layers on
// other lanes are included, because this lane needs them for the load-balancing loss.
func (x *expertLaunches) admit(p *Pass, msg message) bool {
	switch m := msg.(type) {
	case RoutingLanded:
		if m.Prog == p.Seq {
			x.routed[m.Layer] = m
			return true
		}
	case LoadAgreed:
		if m.Prog == p.Seq {
			x.load = &m.Load
			return true
		}
	}
	return false
}

// ready reports whether the routing that v needs is known on the host. An expert needs the routing of its own layer. If
// the pass has a load-balancing loss, that loss and the backward need the load of all layers and ranks.
func (x *expertLaunches) ready(p *Pass, v schedule.Visit) (Cause, bool) {
	if x.balances(p) && (v.Loss || v.Phase == schedule.Backward) && !x.knowsLoad() {
		return StallRouting, false
	}
	_, known := x.routed[v.Layer]
	return StallRouting, known || v.Stage != schedule.Expert
}

// idle reports whether v visits an expert without tokens in a program that fetches experts on demand. Such a tile is
// not fetched. Without on-demand fetching every tile is fetched ahead, so each visit takes its slot and returns it,
// even if nobody reads the tile.
func (x *expertLaunches) idle(p *Pass, v schedule.Visit) bool { return p.OnDemand && x.routed.idle(v) }

// begin skips a launch of an expert to which the router has sent no token, unless the launch must set the expert's
// gradient to zero. For other launches it adds the expert's pairs and counts to e.
func (x *expertLaunches) begin(v schedule.Visit, e *enqueue) (skip bool) {
	if x.routed.idle(v) && !v.Grad() {
		return true
	}
	if v.Stage == schedule.Expert {
		e.From = int(x.routed[v.Layer].Offsets[v.Part-1])
		_, e.Pairs = x.routed.pairs(v)
	}
	if x.balances(e.p) && (x.balance.lanes > 1 || x.balance.distributed) && !x.counted && v.Stage == schedule.Route && v.Phase == schedule.Backward {
		x.counted = true
		e.Counts = x.wholeLoad().Counts
	}
	return false
}

// done reports, after the last launch of a router, that the layer's routing can be copied to the host. This comes
// before all other effects, because the experts' launches wait for the routing.
func (x *expertLaunches) done(v schedule.Visit, e enqueue) []effect {
	if v.Stage != schedule.Route || v.Phase == schedule.Backward || !e.Last {
		return nil
	}
	return []effect{send{x.lane.offloader(), RoutingComputed{Prog: e.p.Seq, Layer: v.Layer}}}
}

func (x *expertLaunches) computed(p *Pass, m *LossComputed) {
	if x.balances(p) {
		m.Load = x.wholeLoad().product()
	}
}

func (x *expertLaunches) programDone() { x.routed, x.load, x.counted = routing{}, nil, false }

// balances reports whether p has the load-balancing loss.
func (x *expertLaunches) balances(p *Pass) bool { return x.balance.layers > 0 && !p.Eval }

// knowsLoad reports whether the experts' load, summed over all layers and ranks, is known.
func (x *expertLaunches) knowsLoad() bool {
	if x.balance.distributed {
		return x.load != nil
	}
	return len(x.routed) == x.balance.layers
}

// wholeLoad returns the experts' load, summed over all layers and ranks. It must be known (knowsLoad).
func (x *expertLaunches) wholeLoad() expertLoad {
	if x.balance.distributed {
		return *x.load
	}
	return x.routed.load()
}

// auxLoss returns the load-balancing loss of p. load is Σ counts·probabilities over the experts. 0: p has no such loss.
func (r *lane) auxLoss(p *Pass, load float64) float64 {
	if !r.balances(p) {
		return 0
	}
	return r.auxWeight(p.Batch) * load
}

// before runs before each launch. One launch of a pass brings the experts' token counts over all
// lanes and ranks (e.Counts). Function before copies these counts to the device for the backward,
// because the device itself has counted only the tokens of its own lane.
func (r expertLane) before(e enqueue, _ schedule.Launch, _ schedule.Visit) {
	if e.Counts == nil {
		return
	}
	x := &r.experts
	for e, n := range e.Counts {
		if r.o.predicted == nil { // a prediction has no memory to write to
			binary.LittleEndian.PutUint32(x.counts[4*e:], uint32(n))
		}
	}
	r.compute.CopyH2D(x.state.Counts.Slice(0, int64(r.plan.Experts)).Mem(), x.counts)
}

// after runs after the router's visit in the forward. It records the event that the tokens' pairs are sorted by expert.
func (r expertLane) after(v schedule.Visit) {
	if v.Stage == schedule.Route && v.Phase != schedule.Backward {
		r.compute.Record(r.experts.ready)
	}
}

// expertTraffic counts the tiles of experts that are copied to the device, and their bytes. It
// counts by program, because some tiles of a step are copied during the step before.
type expertTraffic struct {
	mu     sync.Mutex
	byPass map[int]traffic
}

type traffic struct{ tiles, bytes int64 }

func (x *expertTraffic) add(prog int, bytes int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byPass == nil {
		x.byPass = map[int]traffic{}
	}
	t := x.byPass[prog]
	x.byPass[prog] = traffic{tiles: t.tiles + 1, bytes: t.bytes + bytes}
}

// read returns the traffic of a finished program. The counts of that program and of all earlier ones are then deleted.
func (x *expertTraffic) read(prog int) traffic {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.byPass[prog]
	maps.DeleteFunc(x.byPass, func(p int, _ traffic) bool { return p <= prog })
	return t
}

// evenOffsets returns the RoutingLanded.Offsets for a routing of this many tokens that predictions assume: the experts'
// numbers of pairs differ by at most one. A shared expert (one that gets every token) gets all tokens.
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
