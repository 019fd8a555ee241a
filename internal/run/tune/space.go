package tune

import (
	"errors"

	"mt/actors"
	"mt/internal/run/trials"
	"mt/plan"
	"mt/plan/rates"
)

// Point is a plan with the knobs from which it was made and its prediction.
type Point struct {
	Knobs  trials.Knobs // depths from the plan, other knobs as asked for
	Step   float64      // predicted seconds of a step
	Stall  [actors.NumCauses]float64
	Memory int64 // device + host, in bytes

	run *plan.Run
}

// dimension is one knob (a setting that tuning may change) with the values to try.
type dimension struct {
	key    string // key of the configuration
	at     func(*trials.Knobs) *int
	values []int // ascending
}

// space is the set of plans to search.
type space struct {
	dims []dimension
	// predict returns nil without an error if the knobs have no allowed plan.
	predict func(trials.Knobs) (*Point, error)
	fits    func(trials.Knobs) bool // reports whether predict would find a plan
}

// ladder returns numbers from least to most with growing gaps: 1, 2, 3, 4, 6, 8, 12, 16 and so on.
func ladder(least, most int) []int {
	var out []int
	for n, up := least, 0; n < most; n += up {
		out = append(out, n)
		for up = 1; 4*up <= n; up *= 2 {
		}
	}
	return append(out, max(least, most))
}

// knobs returns the depths of plan r, and the other knobs of asked. If the plan chose the micro-batch size, the knob
// stays 0: other choices of the plan depend on whether the size was given.
func knobs(r *plan.Run, asked trials.Knobs) trials.Knobs {
	d := r.Depths
	asked.WeightSlots, asked.GradBuffers, asked.ActivationSlots, asked.GradSlabs = d.WeightSlots, d.GradBuffers, d.ActivationSlots, 0
	if r.PoolsSlabs() {
		asked.GradSlabs = d.GradSlabs
	}
	return asked
}

// spaceOf returns the knobs that may be changed in the plan start, with their values. newBits adds knobs that change
// the order of sums and therefore the bits of results.
func spaceOf(start *plan.Run, newBits bool) []dimension {
	layers := len(start.Layouts)
	tiles, activations := layers+2*start.Experts, 0
	for l := range start.Layouts {
		activations += start.Kind(l).Activations(start.Spec)
	}
	dims := []dimension{{"pipeline.activation_slots", func(k *trials.Knobs) *int { return &k.ActivationSlots }, ladder(3, max(3, activations*start.Limits.MicroBatches))}}
	if !start.Unified {
		dims = append(dims, dimension{"pipeline.weight_slots", func(k *trials.Knobs) *int { return &k.WeightSlots }, ladder(1, tiles)})
	}
	if start.BufferBytes() > 0 {
		dims = append(dims, dimension{"pipeline.grad_buffers", func(k *trials.Knobs) *int { return &k.GradBuffers }, ladder(1, min(tiles, 16))})
	}
	if start.PoolsSlabs() {
		dims = append(dims, dimension{"pipeline.grad_slabs", func(k *trials.Knobs) *int { return &k.GradSlabs }, ladder(1, layers)})
	}
	if newBits {
		var micro, chunk []int
		for n := start.RowTokens; n < start.Limits.Tokens && n < 1<<16; n *= 2 {
			micro = append(micro, n)
		}
		micro = append(micro, min(start.Limits.Tokens, 1<<16))
		for n := 1024; n <= 1<<15; n *= 2 {
			chunk = append(chunk, n)
		}
		dims = append(dims, dimension{"pipeline.micro_batch_tokens", func(k *trials.Knobs) *int { return &k.MicroBatchTokens }, micro},
			dimension{"pipeline.chunk_tokens", func(k *trials.Knobs) *int { return &k.ChunkTokens }, chunk})
	}
	return dims
}

// sameBits reports whether the plans a and b add the same numbers in the same order, so that training gives the same
// bits.
func sameBits(a, b *plan.Run) bool {
	return a.Order == b.Order && a.Limits.MicroBatchTokens == b.Limits.MicroBatchTokens && a.GradBF16 == b.GradBF16 && a.Spec.ChunkTokens == b.Spec.ChunkTokens &&
		a.Spec.HeadChunk == b.Spec.HeadChunk && a.Spec.Shards() == b.Spec.Shards()
}

// predictor returns functions that plan and predict a step on machine m, each plan once. Without newBits they reject
// plans that add numbers in another order than the plan start.
func predictor(t *trials.Trials, m *rates.Machine, start *plan.Run, newBits bool) (predict func(trials.Knobs) (*Point, error), fits func(trials.Knobs) bool) {
	known := map[trials.Knobs]*Point{}
	fits = func(k trials.Knobs) bool {
		r, err := t.Plan(k)
		return err == nil && (newBits || sameBits(r, start))
	}
	predict = func(k trials.Knobs) (*Point, error) {
		r, err := t.Plan(k)
		var lacking *plan.NotFitting
		var depth *plan.BadDepth
		switch {
		case errors.As(err, &lacking), errors.As(err, &depth):
			return nil, nil
		case err != nil:
			return nil, err
		case !newBits && !sameBits(r, start):
			return nil, nil
		}
		resolved := knobs(r, k)
		if p := known[resolved]; p != nil {
			return p, nil
		}
		made, err := t.Predict(r, m)
		if err != nil {
			return nil, err
		}
		table := r.Table()
		p := &Point{Knobs: resolved, Step: made.Step().Seconds(), Memory: table.Device + table.Host, run: r}
		for cause, d := range made.Report.Stall {
			p.Stall[cause] = d.Seconds()
		}
		known[resolved] = p
		return p, nil
	}
	return predict, fits
}
