package tune

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/internal/run/config"
	"mt/internal/run/trials"
)

// Speed is the tokens per second of several runs.
type Speed struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

// Row is a line of the result's table: a plan with its prediction and, if the plan ran, its
// measurement.
type Row struct {
	Knobs     trials.Knobs `json:"keys"`
	Start     bool         `json:"start,omitempty"`
	Best      bool         `json:"best,omitempty"`
	Predicted float64      `json:"predicted_tok_per_s,omitempty"` // 0: the plan uses another number of threads than the machine's rates
	Measured  *Speed       `json:"measured_tok_per_s"`
	// Stalls are measured shares of the compute stream's time, by cause.
	Stalls map[string]float64 `json:"stalls"`
	Memory int64              `json:"memory_bytes"` // device and host
	Left   int                `json:"left_in_round,omitempty"`
}

// Result is the outcome of a tuning.
type Result struct {
	Machine     string           `json:"machine"`
	Predictions int              `json:"predictions"`
	Rows        []Row            `json:"candidates"`
	Faster      *Faster          `json:"faster"` // the winner against the start; nil: not compared
	Settings    []config.Setting `json:"settings"`
	Curves      []Curve          `json:"curves"`
	Written     string           `json:"written,omitempty"` // the file with the settings

	winner *contestant
	// ownSlabs says that every layer has a host buffer (slab) of its own for the gradient.
	// Gradients then wait for the global norm, and the number of slabs is not tuned.
	ownSlabs bool
	dims     []dimension
}

func newResult(t *tuning) *Result {
	p := t.plan
	return &Result{Machine: t.machine.Name, ownSlabs: p.Clip && p.BufferBytes() > 0 && !p.PoolsSlabs(), Settings: []config.Setting{}, Curves: []Curve{}}
}

// rank fills the rows of the table: the start, then the contestants by the round in which they were eliminated, latest
// first. It fills the proposed settings if the winner is faster.
func (r *Result) rank(t *tuning) {
	r.dims = t.space.dims
	slices.SortStableFunc(t.all, func(a, b *contestant) int {
		round := func(c *contestant) int {
			if c.left == 0 {
				return math.MaxInt
			}
			return c.left
		}
		return cmp.Or(b2i(b == r.winner)-b2i(a == r.winner), cmp.Compare(round(b), round(a)), cmp.Compare(a.Step, b.Step))
	})
	for _, c := range append([]*contestant{t.start}, t.all...) {
		row := c.row()
		row.Start = c == t.start
		row.Best = c == r.winner && r.found()
		if n := c.Knobs.Threads; n != 0 && n != t.machine.Host.Cores {
			row.Predicted = 0
		}
		r.Rows = append(r.Rows, row)
	}
	if r.found() {
		r.Settings = bestSettings(t.space.dims, t.start.Knobs, r.winner.Knobs)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// found reports whether the winner is faster than the start, beyond chance.
func (r *Result) found() bool { return r.Faster != nil && r.Faster.Certain() }

// row returns the contestant as a row of the result's table.
func (c *contestant) row() Row {
	tokens := float64(c.run.Limits.Tokens)
	out := Row{Knobs: c.Knobs, Predicted: tokens / c.Step, Memory: c.Memory, Left: c.left, Stalls: map[string]float64{}}
	out.Knobs.MicroBatchTokens, out.Knobs.ChunkTokens = c.run.Limits.MicroBatchTokens, c.run.Spec.ChunkTokens
	if len(c.samples) == 0 {
		return out
	}
	took := c.took()
	out.Measured = &Speed{Median: tokens / median(took), Min: tokens / slices.Max(took), Max: tokens / slices.Min(took), Runs: len(took)}
	var compute float64
	var stall [actors.NumCauses]float64
	for _, s := range c.samples {
		compute += s.compute
		for cause := range stall {
			stall[cause] += s.stall[cause]
		}
	}
	for cause := actors.NoStall + 1; cause < actors.NumCauses; cause++ {
		if share := stall[cause] / compute; share >= 0.0005 {
			out.Stalls[cause.String()] = share
		}
	}
	return out
}

// bestSettings returns the keys that turn the configuration's plan start into best. They include all depths, because
// the plan derives the depths that are not set from those that are. Other keys are included only if they change.
func bestSettings(dims []dimension, start, best trials.Knobs) []config.Setting {
	var out []config.Setting
	for _, d := range dims {
		value := *d.at(&best)
		depth := d.key != "pipeline.micro_batch_tokens" && d.key != "pipeline.chunk_tokens"
		if depth || value != *d.at(&start) && value > 0 {
			out = append(out, config.Setting{Key: d.key, Value: value})
		}
	}
	if best.Threads != start.Threads {
		out = append(out, config.Setting{Key: "threads", Value: best.Threads})
	}
	return out
}

// WriteTable prints r as a table.
func (r *Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := []string{""}
	for _, d := range r.dims {
		head = append(head, strings.TrimPrefix(d.key, "pipeline."))
	}
	fmt.Fprintln(t, strings.Join(append(head, "threads", "predicted tok/s", "measured tok/s", "of runs", "stalls"), "\t"))
	for _, row := range r.Rows {
		fmt.Fprintln(t, strings.Join(row.cells(r.dims), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d plans were predicted; stalls are parts of the time in which nothing was computed, as measured\n%s", r.Predictions, r.verdict())
	return err
}

// cells returns the texts of the row's columns, one for each of dims and one for each measurement.
func (row *Row) cells(dims []dimension) []string {
	name := ""
	switch {
	case row.Start:
		name = "start"
	case row.Best:
		name = "best"
	}
	out := []string{name}
	k := row.Knobs
	for _, d := range dims {
		out = append(out, fmt.Sprint(*d.at(&k)))
	}
	threads, predicted, measured, runs := "auto", "–", "–", "0"
	if k.Threads > 0 {
		threads = fmt.Sprint(k.Threads)
	}
	count := func(v float64) string { return humanize.CommafWithDigits(v, 0) }
	if row.Predicted > 0 {
		predicted = count(row.Predicted)
	}
	if m := row.Measured; m != nil {
		measured, runs = fmt.Sprintf("%s [%s–%s]", count(m.Median), count(m.Min), count(m.Max)), fmt.Sprint(m.Runs)
	}
	return append(out, threads, predicted, measured, runs, row.stalls())
}

// stalls lists the causes of stalls that take at least half a percent of the time, longest first; "–" if the plan did
// not run.
func (row *Row) stalls() string {
	if row.Measured == nil {
		return "–"
	}
	var causes []string
	for cause, share := range row.Stalls {
		if share >= 0.005 {
			causes = append(causes, cause)
		}
	}
	if len(causes) == 0 {
		return "none"
	}
	slices.SortFunc(causes, func(a, b string) int { return cmp.Or(cmp.Compare(row.Stalls[b], row.Stalls[a]), cmp.Compare(a, b)) })
	for i, cause := range causes {
		causes[i] = fmt.Sprintf("%s %.0f %%", cause, 100*row.Stalls[cause])
	}
	return strings.Join(causes, ", ")
}

// verdict tells the user in words whether a faster plan was found and what to do.
func (r *Result) verdict() string {
	f := r.Faster
	if f == nil {
		return "nothing was held against the start: keep what you have\n"
	}
	percent := func(ratio float64) string { return fmt.Sprintf("%+.1f %%", 100*(ratio-1)) }
	spread := fmt.Sprintf("[%s to %s, %d pairs of runs]", percent(f.Least), percent(f.Most), f.Pairs)
	if !r.found() {
		return fmt.Sprintf("not faster than the start for certain: %s %s; keep what you have\n", percent(f.Ratio), spread)
	}
	text := fmt.Sprintf("faster than the start by %s %s, with %s\n", percent(f.Ratio), spread, config.Settings(r.Settings))
	if r.ownSlabs {
		text += "with clipping every layer has a slab of its own, so there is no grad_slabs to tune\n"
	}
	return text
}
