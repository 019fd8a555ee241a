package plan

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// maxIdle is from how many experts on, which are expected to be idle in a layer in a step,
// experts are fetched on demand and not ahead of the routing.
const maxIdle = 0.5

// resolveExperts counts the experts of a layer and says when they are fetched.
// That follows from the tokens of a step as it is planned, not from a measurement, so
// that the choice is the same whenever the run is repeated.
func (r *Run) resolveExperts(q Request) {
	if r.ExpertLayers() > 0 {
		r.Experts = q.Config.NumExperts
	}
	r.OnDemand = r.Experts > 0 && !r.Unified && r.idleExperts(q.Rows*q.RowTokens) >= maxIdle
}

// idleExperts is how many experts of a layer are expected to be chosen by none of so many
// tokens, where each is as likely as the others.
func (r *Run) idleExperts(tokens int) float64 {
	n := float64(r.Experts)
	return n * math.Pow(1-float64(r.Spec.Config.NumExpertsPerTok)/n, float64(tokens))
}

// ExpertLayers is the number of layers with experts.
func (r *Run) ExpertLayers() int { return r.Spec.Config.ExpertBlocks() }

// Balances says whether a step's loss has a part that balances the experts' load.
func (r *Run) Balances() bool { return r.Experts > 0 && r.Spec.Config.OutputRouterLogits }

// ExpertStateBytes is the size of the state that a layer with experts works in: normed
// input, sum and routing of all tokens of a step. One state serves all layers in turn.
func (r *Run) ExpertStateBytes() int64 {
	if r.Experts == 0 || !r.hasExperts() {
		return 0
	}
	return r.Spec.MoEBytes(r.Limits.Tokens, !r.EvalOnly)
}

// RoutingBytes is the host memory for what is copied from and to that state: where each
// expert's pairs begin, the sums of probabilities, and the counts of all lanes.
func (r *Run) RoutingBytes() int64 {
	if r.Experts == 0 || !r.hasExperts() {
		return 0
	}
	return alignUp(4 * int64(r.Spec.Config.AllExperts()+1+2*r.Experts))
}

// Experts says what the experts of a run move in a step, and when.
type Experts struct {
	Layers  int     `json:"layers"`
	Experts int     `json:"experts"`       // of each of those layers
	Chosen  int     `json:"chosen"`        // by each token
	Shared  bool    `json:"shared"`        // there is one more in each, which every token goes through
	Fetched string  `json:"fetched"`       // "ahead" of the routing, "on demand" or, never moved, "in place"
	Idle    float64 `json:"expected_idle"` // how many of a layer's experts, in a full step, where all are as likely
	// Bytes of experts' tiles, a shared one's left out, that cross the link in a full step: all of them, or
	// those that are expected to be chosen.
	AllBytes      int64 `json:"all_bytes"`
	ExpectedBytes int64 `json:"expected_bytes"`
}

// ExpertTraffic is what the experts of r move; nil where it has none.
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
