package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"mt/internal/run/settings"
	"mt/internal/run/trials"
)

// GridResult is what was tuned beside the best of a grid of real runs.
type GridResult struct {
	Tuned trials.Knobs `json:"tuned"`
	Best  trials.Knobs `json:"best_of_grid"`
	Plans int          `json:"plans"` // of the grid
	// Beside says how much faster the tuned plan is than the best of the grid, and Gain how much
	// faster than the start, both by pairs of runs.
	Beside Faster `json:"beside"`
	Gain   Faster `json:"gain"`
}

// Grid tunes as Tune does, then runs every plan of a grid of those values in turns, and holds what
// was tuned against the best of them.
func Grid(ctx context.Context, o Options, values []int, turns int) (_ *GridResult, err error) {
	r, err := Tune(ctx, o)
	if err != nil {
		return nil, err
	}
	t := &tuning{Options: o}
	if t.trials, err = trials.OpenTrials(o.Config, settings.Options{Stderr: io.Discard}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.trials.Close()) }()
	asked := t.trials.Asked()
	if t.plan, err = t.trials.Plan(asked); err != nil {
		return nil, err
	}
	start, tuned := &contestant{Point: &Point{Knobs: knobs(t.plan, asked), run: t.plan}}, r.best()
	if tuned == nil {
		tuned = start
	}
	tuned = &contestant{Point: tuned.Point}
	all := t.grid(values)
	if len(all) == 0 {
		return nil, fmt.Errorf("tune: the grid has no plan that fits")
	}
	steps := max(2, r.steps)
	t.runs = budget{of: turns*len(all) + 4*o.Pairs, began: time.Now()}
	t.runs.steps = t.runs.of * (steps + idleSteps)
	for turn := range turns {
		for i := range all {
			c := all[(i+turn)%len(all)]
			s, err := t.run(ctx, c.Point, steps)
			if err != nil {
				return nil, err
			}
			c.samples = append(c.samples, s)
		}
	}
	best := slices.MinFunc(all, func(a, b *contestant) int { return cmp.Compare(median(a.took()), median(b.took())) })
	out := &GridResult{Tuned: tuned.Knobs, Best: best.Knobs, Plans: len(all)}
	if out.Beside, err = pair(ctx, best, tuned, o.Pairs, steps, t.run, nil); err == nil {
		out.Gain, err = pair(ctx, start, tuned, o.Pairs, steps, t.run, nil)
	}
	return out, err
}

// best is the winner where it is faster than the start.
func (r *Result) best() *contestant {
	if r.found() {
		return r.winner
	}
	return nil
}

// grid are the plans that fit with every combination of those values, each once.
func (t *tuning) grid(values []int) (all []*contestant) {
	combinations := []trials.Knobs{t.trials.Asked()}
	for _, d := range spaceOf(t.plan, false) {
		var next []trials.Knobs
		for _, k := range combinations {
			for _, v := range values {
				if v >= d.values[0] && v <= d.values[len(d.values)-1] {
					*d.at(&k) = v
					next = append(next, k)
				}
			}
		}
		combinations = next
	}
	seen := map[trials.Knobs]bool{}
	for _, k := range combinations {
		r, err := t.trials.Plan(k)
		if err != nil || !sameBits(r, t.plan) || seen[knobs(r, k)] {
			continue
		}
		seen[knobs(r, k)] = true
		all = append(all, &contestant{Point: &Point{Knobs: knobs(r, k), run: r}})
	}
	return all
}

// WriteTable prints r for people.
func (r *GridResult) WriteTable(w io.Writer) error {
	_, err := fmt.Fprintf(w, "tuned          %+v\nbest of %-6d %+v\ntuned over the best of the grid  %s\ntuned over the start             %s\n",
		r.Tuned, r.Plans, r.Best, r.Beside, r.Gain)
	return err
}

// String is the ratio with its spread.
func (f Faster) String() string {
	return fmt.Sprintf("%.3f times as fast [%.3f to %.3f, %d pairs of runs]", f.Ratio, f.Least, f.Most, f.Pairs)
}
