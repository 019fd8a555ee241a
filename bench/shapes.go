package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"mt/device"
	"mt/internal/chart"
	"mt/internal/human"
	"mt/internal/train"
)

// ShapesOptions say which shapes are trained, and how. Zero fields take their default.
type ShapesOptions struct {
	Name   string // of Base
	Base   TrainShape
	Depths []float64 // how many times as many blocks as Base has; none: no sweep of depth
	Widths []int     // how many times as wide as Base; none: no sweep of width
	// Ours are the device and the pipeline; AliasLayers among them.
	Ours   train.SyntheticOptions
	DType  string // fp32 or bf16
	Warmup int    // steps before those that count; default 1
	Steps  int    // that count; default 4
	Log    func(string)
}

// ShapesReport is how training slows down, or does not, as a model gets deeper and wider.
type ShapesReport struct {
	Base   string  `json:"base"`
	Device string  `json:"device"`
	DType  string  `json:"dtype"`
	Load   float64 `json:"load_before"`
	Steps  int     `json:"steps"`
	// Aliased: all blocks shared one memory. Rates are those of such models; losses and
	// weights meant nothing.
	Aliased bool       `json:"aliased"`
	Rows    []ShapeRow `json:"rows"`
}

// ShapeRow is one shape. Aliased is said in every row too, as rows travel alone.
type ShapeRow struct {
	Sweep string     `json:"sweep"` // depth or width
	Times float64    `json:"times"` // of the base
	Shape TrainShape `json:"shape"`
	// Parameters are those of the model.
	Parameters int64   `json:"parameters"`
	TokPerS    *Sample `json:"tok_per_s,omitempty"` // of the steps
	TFLOPS     float64 `json:"tflops,omitempty"`    // model FLOPs, in 10¹² a second
	StallShare float64 `json:"stall_share"`
	// HostBytes are what the run took as planned, HostWhole what it would take with a memory
	// for every layer: the same unless Aliased. DeviceBytes is the most that the device held.
	HostBytes   int64  `json:"host_bytes,omitempty"`
	HostWhole   int64  `json:"host_bytes_whole,omitempty"`
	DeviceBytes int64  `json:"device_bytes,omitempty"`
	Aliased     bool   `json:"aliased"`
	LeftOut     string `json:"left_out,omitempty"` // why it did not run
}

// aliasedNote stands beside every figure of a run whose layers share their memory.
const aliasedNote = "ALIASED LAYERS: all blocks share one memory; speed is that of the model, what it computes is not"

// Wider is s with k times as many heads of the same size, and k times the hidden size and
// the width of the MLP: what an attention head and a token do stays the same.
func (s TrainShape) Wider(k int) TrainShape {
	s.HeadDim = s.headDim()
	s.HiddenSize, s.IntermediateSize, s.Heads, s.KVHeads = k*s.HiddenSize, k*s.IntermediateSize, k*s.Heads, k*s.KVHeads
	return s
}

// Deeper is s with so many times as many blocks, at least one.
func (s TrainShape) Deeper(times float64) TrainShape {
	s.Layers = max(1, int(math.Round(times*float64(s.Layers))))
	return s
}

// Shapes trains every shape for a few steps over random tokens.
func Shapes(ctx context.Context, o ShapesOptions) (*ShapesReport, error) {
	if o.Warmup == 0 {
		o.Warmup = 1
	}
	if o.Steps == 0 {
		o.Steps = 4
	}
	r := &ShapesReport{Base: o.Name, DType: o.DType, Load: loadNow(), Steps: o.Steps, Aliased: o.Ours.AliasLayers}
	for _, times := range o.Depths {
		r.Rows = append(r.Rows, ShapeRow{Sweep: "depth", Times: times, Shape: o.Base.Deeper(times), Aliased: r.Aliased})
	}
	for _, k := range o.Widths {
		r.Rows = append(r.Rows, ShapeRow{Sweep: "width", Times: float64(k), Shape: o.Base.Wider(k), Aliased: r.Aliased})
	}
	var last error
	ran := 0
	for i := range r.Rows {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("bench shapes: %w", err)
		}
		row := &r.Rows[i]
		if o.Log != nil {
			o.Log(fmt.Sprintf("%s × %g: %d blocks of hidden size %d", row.Sweep, row.Times, row.Shape.Layers, row.Shape.HiddenSize))
		}
		if err := r.train(o, row); err != nil {
			last, row.LeftOut = err, err.Error()
			continue
		}
		ran++
	}
	if ran == 0 {
		return nil, fmt.Errorf("bench shapes: no shape ran, the last because: %w", last)
	}
	return r, nil
}

// train runs one shape and fills in its row.
func (r *ShapesReport) train(o ShapesOptions, row *ShapeRow) (err error) {
	c, err := row.Shape.Config()
	if err != nil {
		return err
	}
	row.Parameters = c.Params()
	options := o.Ours
	options.Model, options.Rows, options.SeqLen = c, row.Shape.Rows, row.Shape.SeqLen
	if o.DType == "bf16" {
		options.Act = device.BF16
	}
	run, err := train.StartSynthetic(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	// One call: steps follow each other as in training, and each is timed from the report
	// of the one before.
	reports, err := run.Run(o.Warmup + o.Steps)
	if err != nil {
		return err
	}
	r.Device = run.DeviceName()
	var rates []float64
	var sums sums
	var timed PipelineSample
	for _, p := range reports[o.Warmup:] {
		counted, executed := run.FLOPs(p)
		sums.add(p, counted, executed)
		timed.add(p)
		rates = append(rates, float64(p.Tokens)/p.Elapsed.Seconds())
	}
	s := Summarize(rates)
	row.TokPerS, row.TFLOPS, row.StallShare = &s, sums.rates().TFLOPS, timed.Share
	row.HostBytes, row.HostWhole = run.HostBytes()
	row.DeviceBytes = run.DeviceUsage().PeakTotal
	return nil
}

// WriteTable prints the report for people.
func (r *ShapesReport) WriteTable(w io.Writer) error {
	warning, mark := "", ""
	if r.Aliased {
		warning, mark = aliasedNote+"\n", " ALIASED"
	}
	if _, err := fmt.Fprintf(w, "%straining steps of %s made deeper and wider, %s, %s; median [least–most] of %d steps\n%s", warning, r.Base, r.DType, r.Device, r.Steps, busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"sweep", "blocks", "hidden", "MLP", "heads", "tokens", "parameters", "tokens/s", "TFLOP/s", "stall", "host", "device"}}
	for _, x := range r.Rows {
		s := x.Shape
		cells := []string{fmt.Sprintf("%s × %g", x.Sweep, x.Times), strconv.Itoa(s.Layers), strconv.Itoa(s.HiddenSize), strconv.Itoa(s.IntermediateSize),
			fmt.Sprintf("%d/%d", s.Heads, s.KVHeads), fmt.Sprintf("%d × %d", s.Rows, s.SeqLen), billions(x.Parameters)}
		if x.LeftOut != "" {
			rows = append(rows, append(cells, "left out"))
			continue
		}
		held := human.Bytes(x.HostBytes)
		if x.Aliased {
			held += " of " + human.Bytes(x.HostWhole)
		}
		rows = append(rows, append(cells, whole(*x.TokPerS)+mark, fmt.Sprintf("%.3g", x.TFLOPS)+mark, fmt.Sprintf("%.1f %%", 100*x.StallShare), held, human.Bytes(x.DeviceBytes)))
	}
	if err := writeTable(w, rows); err != nil {
		return err
	}
	for _, x := range r.Rows {
		if x.LeftOut == "" {
			continue
		}
		hint := ""
		if !r.Aliased {
			hint = " (--alias-layers runs shapes that are larger than the host)"
		}
		if _, err := fmt.Fprintf(w, "left out: %s × %g: %s%s\n", x.Sweep, x.Times, x.LeftOut, hint); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, warning)
	return err
}

// billions prints a number of parameters.
func billions(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1fB", float64(n)/1e9)
}

// Chart draws rates over parameters.
func (r *ShapesReport) Chart() chart.Chart {
	tflops, tokens := newLines(), newLines()
	for _, x := range r.Rows {
		if x.LeftOut == "" {
			tflops.add(x.Sweep, float64(x.Parameters)/1e9, x.TFLOPS)
			tokens.add(x.Sweep, float64(x.Parameters)/1e9, x.TokPerS.Median)
		}
	}
	title, under := fmt.Sprintf("%s deeper and wider: %s", r.Base, r.Device), "parameters, 10⁹"
	if r.Aliased {
		title, under = "ALIASED LAYERS, speed only: "+title, under+" — "+aliasedNote
	}
	return chart.Chart{Title: title, X: chart.Axis{Title: under, Log: true}, Panels: []chart.Panel{
		{Y: chart.Axis{Title: "TFLOP/s", Zero: true}, Height: 240, Series: tflops.series}, {Y: chart.Axis{Title: "tokens/s", Log: true}, Height: 240, Series: tokens.series}}}
}
