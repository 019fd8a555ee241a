package predict

import (
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/base/human"
	"mt/plan"
)

// Swept is one line of a table over batch sizes, sequence lengths, depths, devices or hosts.
type Swept struct {
	What      string     `json:"what"`
	Rows      int        `json:"rows_per_step"`
	RowTokens int        `json:"row_tokens"`
	Device    int64      `json:"device_bytes,omitempty"`
	Host      int64      `json:"host_bytes,omitempty"`
	Predicted *Predicted `json:"prediction,omitempty"`
	Problem   string     `json:"problem,omitempty"` // why there is no prediction
}

// variant is a request for a plan that is to be predicted, with the label of its line in a table.
type variant struct {
	what string
	q    plan.Request
}

// mostSweptTokens is the largest step of a sweep, in tokens; mostSwept is the largest number of lines.
const mostSweptTokens, mostSwept = 4 << 20, 8

// batches returns variants of q with 1/8, 1/4, 1/2, … of its rows, and with more rows than it has.
func batches(q plan.Request) (out []variant) {
	for rows := max(1, q.Rows/8); rows*q.RowTokens <= max(mostSweptTokens, q.Rows*q.RowTokens) && len(out) < mostSwept; rows *= 2 {
		v := q
		v.Rows = rows
		out = append(out, variant{fmt.Sprintf("%d rows", rows), v})
	}
	return out
}

// lengths returns variants of q with ever longer rows and the same tokens per step; a step has at least one row.
func lengths(q plan.Request) (out []variant) {
	tokens := q.Rows * q.RowTokens
	for length := 1024; length <= mostSweptTokens && len(out) < mostSwept+2; length *= 2 {
		v := q
		v.RowTokens, v.Rows, v.Positions, v.Document = length, max(1, tokens/length), 0, 0
		out = append(out, variant{fmt.Sprintf("%d rows of %d tokens", v.Rows, length), v})
	}
	return out
}

// sweep returns variants of q in which one size changes. `what` names the size: batch, seq or depth; "" returns none.
func sweep(what string, q plan.Request) []variant {
	switch what {
	case "batch":
		return batches(q)
	case "seq":
		return lengths(q)
	case "depth":
		return depths(q, actors.StallWeights, actors.StallGradBuffer, actors.StallActivation)
	}
	return nil
}

// depths returns variants of q in each of which one pipeline depth differs. It takes the depths that can reduce stalls
// of the given causes.
func depths(q plan.Request, causes ...actors.Cause) (out []variant) {
	for _, key := range []struct {
		name   string
		at     func(*plan.Depths) *int
		values []int
		causes []actors.Cause
	}{
		{"weight_slots", func(d *plan.Depths) *int { return &d.WeightSlots }, []int{1, 2, 3, 4, 6, 8}, []actors.Cause{actors.StallWeights}},
		{"grad_buffers", func(d *plan.Depths) *int { return &d.GradBuffers }, []int{1, 2, 3, 4}, []actors.Cause{actors.StallGradBuffer}},
		{"grad_slabs", func(d *plan.Depths) *int { return &d.GradSlabs }, []int{1, 2, 3, 4, 6}, []actors.Cause{actors.StallGradBuffer}},
		{"activation_slots", func(d *plan.Depths) *int { return &d.ActivationSlots }, []int{3, 4, 6, 8, 16, 32}, []actors.Cause{actors.StallActivation, actors.StallPassage}},
	} {
		if key.name == "grad_slabs" && q.Clip && !q.StateDir || !slices.ContainsFunc(causes, func(c actors.Cause) bool { return slices.Contains(key.causes, c) }) {
			continue // with clipping every layer has a slab, unless gradients wait on disks
		}
		for _, n := range key.values {
			v := q
			*key.at(&v.Depths) = n
			out = append(out, variant{fmt.Sprintf("%s: %d", key.name, n), v})
		}
	}
	return out
}

// recommendation is the recommended batch size and depths.
type recommendation struct {
	Rows            int          `json:"rows_per_step"` // the fewest rows with nearly the best rate
	TokensPerSecond float64      `json:"tokens_per_second"`
	Depths          *plan.Depths `json:"pipeline,omitempty"` // nil: the plan's own
	Gain            float64      `json:"gain,omitempty"`     // of Depths over the plan's own
}

// closeEnough is the share of the best throughput that a recommended smaller batch must reach. worthIt is the relative
// gain in throughput that recommended depths must bring.
const closeEnough, worthIt = 0.95, 0.02

// recommend returns the recommended rows per step and depths for q. It predicts other batch sizes, and depths that
// reduce the stalls in now, the prediction for q itself. A variant too slow to be recommended is predicted no further
// than needed to know that.
func (f *forecaster) recommend(q plan.Request, now *Predicted) (*recommendation, error) {
	rate := func(s Swept) float64 {
		if s.Predicted == nil {
			return 0
		}
		return s.Predicted.TokensPerSecond
	}
	tried, err := f.tryAll(batches(q), f.machine, closeEnough, 0)
	if err != nil {
		return nil, err
	}
	best, out := 0.0, &recommendation{}
	for _, s := range tried {
		best = max(best, rate(s))
	}
	for _, s := range tried {
		if rate(s) > 0 && rate(s) >= closeEnough*best {
			out.Rows, out.TokensPerSecond = s.Rows, rate(s)
			break
		}
	}
	var causes []actors.Cause
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		if now.Stall[c.String()] > worthIt*now.Step {
			causes = append(causes, c)
		}
	}
	variants := depths(q, causes...)
	f.of += len(variants) - len(depths(q, recommendedFor...))
	if tried, err = f.tryAll(variants, f.machine, 1, (1+worthIt)*now.TokensPerSecond); err != nil {
		return nil, err
	}
	for i, s := range tried {
		gain := rate(s)/now.TokensPerSecond - 1
		if gain <= max(worthIt, out.Gain) {
			continue
		}
		r, err := plan.Resolve(variants[i].q)
		if err != nil {
			return nil, err
		}
		out.Depths, out.Gain = &r.Depths, gain
	}
	return out, nil
}

// recommendedFor are the stalls for which other depths are predicted.
var recommendedFor = []actors.Cause{actors.StallWeights, actors.StallGradBuffer, actors.StallActivation, actors.StallPassage}

// writeSwept prints the lines of a sweep as a table.
func writeSwept(w io.Writer, rows []Swept) error {
	cells := [][]string{{"", "step s", "tokens/s", "TFLOPS", "stall", "device", "host", "binds"}}
	for _, s := range rows {
		p := s.Predicted
		if p == nil {
			cells = append(cells, []string{s.What, "", "", "", "", "", "", s.Problem})
			continue
		}
		cells = append(cells, []string{s.What, fmt.Sprintf("%.4g", p.Step), humanize.Comma(int64(p.TokensPerSecond)), fmt.Sprintf("%.4g", p.TFLOPS),
			fmt.Sprintf("%.0f %%", 100*p.StallShare), human.Bytes(s.Device), human.Bytes(s.Host), p.Binds})
	}
	return align(w, cells)
}
