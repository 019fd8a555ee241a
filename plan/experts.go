package plan

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// maxIdle bounds the expected number of idle experts in a layer: experts that no token of a step
// chooses. If maxIdle or more are expected, each expert is fetched on demand, when the routing is
// known. Otherwise all experts are fetched ahead of the routing.
const maxIdle = 0.5

// resolveExperts sets the number of experts and decides whether they are fetched ahead of the
// routing or on demand. The decision depends on the planned tokens of a step, not on measurements,
// so repeated runs make the same one.
func (r *Run) resolveExperts(q Request) {
	if r.ExpertLayers() > 0 {
		r.Experts = q.Config.NumExperts
	}
	r.OnDemand = r.Experts > 0 && !r.Unified && r.idleExperts(q.Rows*q.RowTokens) >= maxIdle
}

// idleExperts returns the expected number of experts of a layer that no token chooses, if all experts are equally
// likely.
func (r *Run) idleExperts(tokens int) float64 {
	n := float64(r.Experts)
	return n * math.Pow(1-float64(r.Spec.Config.NumExpertsPerTok)/n, float64(tokens))
}

// ExpertLayers returns the number of layers with experts.
func (r *Run) ExpertLayers() int { return r.Spec.Config.ExpertBlocks() }

// Balances reports whether the loss includes a load-balancing term for experts.
func (r *Run) Balances() bool { return r.Experts > 0 && r.Spec.Config.OutputRouterLogits }

// ExpertStateBytes returns the device memory that layers with experts need for all tokens of a
// step: the normed input, the sum of the experts' outputs and the routing. All such layers use the
// same memory, one after the other.
func (r *Run) ExpertStateBytes() int64 {
	if r.Experts == 0 || !r.hasExperts() {
		return 0
	}
	return r.Spec.MoEBytes(r.Limits.Tokens, !r.EvalOnly)
}

// RoutingBytes returns the host memory for one layer's routing: where each expert's (token, expert)
// pairs begin, the sums of router probabilities, and the pair counts of all lanes.
func (r *Run) RoutingBytes() int64 {
	if r.Experts == 0 || !r.hasExperts() {
		return 0
	}
	return alignUp(4 * int64(r.Spec.Config.AllExperts()+1+2*r.Experts))
}

// Experts describes how a run fetches its experts and how many bytes that takes in a step.
type Experts struct {
	Layers  int     `json:"layers"`
	Experts int     `json:"experts"`       // in each layer with experts
	Chosen  int     `json:"chosen"`        // experts for each token
	Shared  bool    `json:"shared"`        // each layer has one more expert for all tokens
	Fetched string  `json:"fetched"`       // "ahead" of the routing, "on demand" or, without copies, "in place"
	Idle    float64 `json:"expected_idle"` // expected number of experts of a layer without tokens in a full step, if all experts are equally likely
	// AllBytes and ExpectedBytes count the bytes of expert tiles, without shared experts, that a
	// full step copies to the device. AllBytes is for all experts, ExpectedBytes for the expected
	// number of experts with tokens.
	AllBytes      int64 `json:"all_bytes"`
	ExpectedBytes int64 `json:"expected_bytes"`
}

// ExpertTraffic describes how r's experts are fetched, and the bytes of that; nil if r has no
// experts.
func (r *Run) ExpertTraffic() *Experts {
	if r.Experts == 0 {
		return nil
	}
	x := &Experts{Layers: r.ExpertLayers(), Experts: r.Experts, Chosen: r.Spec.Config.NumExpertsPerTok, Shared: r.Spec.Config.SharedSize > 0, Fetched: "ahead", Idle: r.idleExperts(r.Limits.Tokens)}
	switch {
	case r.Unified:
		x.Fetched = "in place"
		return x
	case r.OnDemand:
		x.Fetched = "on demand"
	}
	up, again := r.fetches()
	for _, f := range append(up, again...) {
		if f.expert {
			x.AllBytes += f.bytes
		}
	}
	x.ExpectedBytes = int64(float64(x.AllBytes) * (1 - x.Idle/float64(r.Experts)))
	return x
}

func (x *Experts) String() string {
	shared := ""
	if x.Shared {
		shared = " and one that is shared"
	}
	s := fmt.Sprintf("experts: %s (%d in each of %d layers, %d for each token%s)", x.Fetched, x.Experts, x.Layers, x.Chosen, shared)
	if x.AllBytes > 0 {
		s += fmt.Sprintf("; a step moves %s of them if all are used, %s expected", humanize.IBytes(uint64(x.AllBytes)), humanize.IBytes(uint64(x.ExpectedBytes)))
	}
	return s
}
