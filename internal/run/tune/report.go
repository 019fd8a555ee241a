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

// Speed is tokens a second of several runs.
type Speed struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

// Row is a plan, predicted and, unless it never ran, measured.
type Row struct {
	Knobs     trials.Knobs `json:"keys"`
	Start     bool         `json:"start,omitempty"`
	Best      bool         `json:"best,omitempty"`
	Predicted float64      `json:"predicted_tok_per_s,omitempty"` // 0: for another number of threads than the rates are for
	Measured  *Speed       `json:"measured_tok_per_s"`
	// Stalls are shares of the compute stream's time, by cause, as measured.
	Stalls map[string]float64 `json:"stalls"`
	Memory int64              `json:"memory_bytes"` // of device and host
	Left   int                `json:"left_in_round,omitempty"`
}

// Result is what a tuning found out.
type Result struct {
	Machine     string           `json:"machine"`
	Predictions int              `json:"predictions"`
	Rows        []Row            `json:"candidates"`
	Faster      *Faster          `json:"faster"` // the winner than the start; nil: there was no comparison
	Settings    []config.Setting `json:"settings"`
	Curves      []Curve          `json:"curves"`
	Written     string           `json:"written,omitempty"` // the file with the settings

	winner *contestant
	// ownSlabs: every layer's gradient has a slab of its own, because it waits for the norm.
	ownSlabs bool
	dims     []dimension
}

func newResult(t *tuning) *Result {
	p := t.plan
	return &Result{Machine: t.machine.Name, ownSlabs: p.Clip && p.BufferBytes() > 0 && !p.PoolsSlabs(), Settings: []config.Setting{}, Curves: []Curve{}}
}

// rank makes the rows, the start first and then the others, those that stayed longest first, and
// the settings where the winner is faster.
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

// found says that something faster than the start was found.
func (r *Result) found() bool { return r.Faster != nil && r.Faster.Certain() }

// row is c as a row.
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

// bestSettings are what makes best of start: all depths, since those that the plan chooses by itself
// hang on those that are given, and of other keys what is new.
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

// WriteTable prints r for people.
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

// cells are the columns of the table.
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

// stalls are the stalls of at least half a percent, the longest first.
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

// verdict is what came out, and what to do.
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
