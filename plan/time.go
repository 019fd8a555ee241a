package plan

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/host/optim"
	"mt/layers/schedule"
)

// Rates has the three rates of a machine that bound the time of a step.
type Rates struct {
	MatMul float64 `json:"matmul_flops"`    // matrix products in the compute dtype on one device, FLOP/s
	Host   float64 `json:"host_bytes"`      // updates in host memory, read and written, bytes/s
	Link   float64 `json:"link_bytes_each"` // between host and device, each direction, bytes/s; unused with unified memory
}

// Bound is a lower bound for the time of a step at given rates, in seconds. It counts matrix products, attention, the
// optimizer's memory traffic and the minimum traffic on the link.
type Bound struct {
	Rates  Rates `json:"rates"`
	Tokens int   `json:"tokens"` // in a step
	// Forward and Backward are each the larger of two times: computation, including recomputation, and transfers.
	Forward  float64 `json:"forward_seconds"`
	Backward float64 `json:"backward_seconds"`
	// Optimizer is the update time of all layers. First is the first layer's time between the end of the backward and
	// the next forward: store, update, load.
	Optimizer float64 `json:"optimizer_seconds"`
	// Matrices is the device time for matrices that are updated whole (optim.Muon): the larger of products and
	// transfers.
	Matrices float64 `json:"matrices_seconds,omitempty"`
	First    float64 `json:"first_layer_seconds"`
	// Step is Backward + max(Forward + Matrices, Optimizer without the first layer) + First. Without clipping, updates
	// also overlap the backward.
	Step            float64 `json:"step_seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	// HidingTokens is the number of tokens in a step from which the updates cost no time: the
	// matrix products that run beside them take at least as long. It assumes the run's row length.
	HidingTokens int64 `json:"hiding_tokens"`
}

// Time returns the bound for a full step of r at the given rates, which must be positive.
func Time(r *Run, rates Rates) (Bound, error) {
	if !(rates.MatMul > 0 && rates.Host > 0 && (rates.Link > 0 || r.Unified)) {
		return Bound{}, fmt.Errorf("bound the time of a step: rates of %g FLOP/s, %g B/s on the host and %g B/s on the link: all are more than 0",
			rates.MatMul, rates.Host, rates.Link)
	}
	b := Bound{Rates: rates, Tokens: r.Limits.Tokens}
	forward, backward := r.flops()
	up, again, down := r.transfers()
	crossing, crossingAgain := r.crossings()
	if n := float64(r.Lanes()); n > 1 { // each device has its own link and a part of the work
		rates.MatMul, rates.Link = n*rates.MatMul, n*rates.Link
	}
	if r.Unified {
		rates.Link = math.Inf(1)
	}
	b.Forward = max(forward/rates.MatMul, (up+crossing[0])/rates.Link, crossing[1]/rates.Link)
	if r.EvalOnly {
		b.Step = b.Forward
		b.TokensPerSecond = float64(b.Tokens) / b.Step
		return b, nil
	}
	b.Backward = max(backward/rates.MatMul, (again+crossingAgain[0])/rates.Link, (down+crossingAgain[1])/rates.Link)
	gradients := r.Gradients()
	for l := range r.Layouts {
		b.Optimizer += r.UpdateBytes(l, gradients[l]) / rates.Host
	}
	first := r.UpdateBytes(0, gradients[0]) / rates.Host
	rows := float64(r.GradElems(0)*r.GradBytes() + r.RowBytes(r.Limits.UniqueIDs))
	b.First = first + rows/rates.Link
	hidden := b.Optimizer - first
	perToken := forward / float64(b.Tokens)
	flops, handed := r.matrixTraffic()
	b.Matrices = max(flops/rates.MatMul, handed/rates.Link)
	b.Step = b.First + b.Backward + max(b.Forward+b.Matrices, hidden)
	if !r.Clip {
		b.Step = b.First + max(b.Backward+b.Forward+b.Matrices, hidden)
		perToken += backward / float64(b.Tokens)
	}
	b.TokensPerSecond = float64(b.Tokens) / b.Step
	b.HidingTokens = int64(math.Ceil(hidden * rates.MatMul / perToken))
	return b, nil
}

// flops returns the FLOPs of a step's forward and backward, if all rows are full. Recomputation counts in the backward.
func (r *Run) flops() (forward, backward float64) {
	c, tokens := r.Spec.Config, float64(r.Limits.Tokens)
	pairs := int64(tokens / float64(r.RowTokens) * float64(c.AttendedPairs(r.RowTokens)))
	pairsAgain := int64(tokens / float64(r.RowTokens) * float64(r.Spec.PairsAgain(r.RowTokens)))
	again := float64(r.Spec.RecomputedFLOPs(int64(r.Limits.Tokens), pairsAgain) + r.Spec.HeadRecomputedFLOPs(int64(r.Limits.Tokens)))
	return c.ForwardFLOPs(int64(r.Limits.Tokens), pairs), c.BackwardFLOPs(int64(r.Limits.Tokens), pairs) + again
}

// transfers returns the bytes that must cross the link in a step. up counts tiles and embedding rows for the forward,
// again counts tiles that are fetched once more for the backward and gradients of earlier rounds, and down counts gradients. Spilled activations do not
// count, because more activation slots avoid them.
func (r *Run) transfers() (up, again, down float64) {
	forward, backward := r.fetches()
	for _, f := range forward {
		up += r.expected(f)
	}
	for _, f := range backward {
		again += r.expected(f)
	}
	for l := range r.Layouts {
		down += float64(r.GradElems(l) * r.GradBytes())
	}
	rounds := float64(r.StepRounds())
	return rounds*up + float64(r.RowBytes(r.Limits.UniqueIDs)), rounds*again + (rounds-1)*down, rounds * down
}

// crossings returns the bytes that launches copy to the device (index 0) and back (index 1), in
// forward and backward. Only runs with hidden states on the host have such copies.
func (r *Run) crossings() (forward, backward [2]float64) {
	add := func(to *[2]float64, visits []schedule.Visit, phase schedule.Phase) {
		for _, v := range visits {
			v.Phase = phase
			up, down := r.Spec.Crosses(v, r.Layouts[v.Layer].Block, r.Limits.Tokens)
			to[0], to[1] = to[0]+float64(up), to[1]+float64(down)
		}
	}
	for _, l := range r.Schedule().Layers {
		if r.EvalOnly {
			add(&forward, l.Evaluate, schedule.Evaluate)
			continue
		}
		add(&forward, l.Forward, schedule.Forward)
		add(&backward, l.Backward, schedule.Backward)
	}
	return forward, backward
}

// expected returns how many bytes the fetch f is expected to copy. An expert that is fetched on demand may not be
// needed, so its size is multiplied by the expected fraction of experts with tokens.
func (r *Run) expected(f fetch) float64 {
	if !f.expert || !r.OnDemand {
		return float64(f.bytes)
	}
	return float64(f.bytes) * (1 - r.idleExperts(r.Limits.Tokens)/float64(r.Experts))
}

// UpdateBytes returns the bytes that the update of layer l reads and writes. Weights and planes count twice, the
// gradient once. With several ranks it counts this rank's share.
func (r *Run) UpdateBytes(l int, g Gradient) float64 {
	grads := r.Layouts[l].Elems
	if g.OfRows(l) {
		grads = r.GradElems(l)
	}
	bytes := float64(2*(optim.MasterBytes(r.Layouts[l])+r.planeBytes(l)) + grads*r.GradBytes())
	for _, m := range r.Matrices(l) { // the orthogonalization's input and output
		bytes += float64(2 * m.Elems() * r.Spec.Act.Size())
	}
	if r.Shares != nil && r.Layouts[l].Elems > 0 {
		bytes *= float64(r.Share(l).Elems()) / float64(r.Layouts[l].Elems)
	}
	return bytes
}

// Write prints the bound for people, line by line.
func (b Bound) Write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what string, s float64, detail string, args ...any) {
		fmt.Fprintf(tw, "  time\t%s\t%.4g s\t%s\n", what, s, fmt.Sprintf(detail, args...))
	}
	line("forward", b.Forward, "at %.4g TFLOP/s", b.Rates.MatMul/1e12)
	if b.Backward > 0 {
		line("backward", b.Backward, "with what is computed again")
		line("optimizer", b.Optimizer, "at %.4g GB/s of host memory", b.Rates.Host/1e9)
		if b.Matrices > 0 {
			line("matrices", b.Matrices, "of the optimizer, on the device")
		}
		line("first layer", b.First, "store, update, load")
	}
	detail := fmt.Sprintf("%s tokens a second", humanize.Comma(int64(b.TokensPerSecond)))
	if b.HidingTokens > 0 {
		detail += fmt.Sprintf("; steps of %s tokens hide the optimizer", humanize.Comma(b.HidingTokens))
	}
	line("step at least", b.Step, "%s", detail)
	tw.Flush()
}
