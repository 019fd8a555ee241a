package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"mt/device"
	"mt/device/cpu/gemm"
	"mt/internal/doctor/measure"
	"mt/model"
	"mt/plan/rates"
)

// MatMulOptions configures MatMul. Zero fields mean the defaults.
type MatMulOptions struct {
	OnDevice
	DTypes  []device.DType // default: fp32 on a CPU, bf16 and fp32 on a GPU
	Model   *model.Config  // the model whose products are measured; nil: square products only
	Name    string         // name of Model
	Tokens  int            // tokens in a launch; default 1024 on a CPU, 8192 on a GPU
	Squares []int          // sizes of square products; default 512, 1024, 2048 on a CPU, 1024 … 8192 on a GPU
}

// MatMulReport has the speed of a model's matrix products and of square products.
type MatMulReport struct {
	Where
	Model  string `json:"model,omitempty"`
	Tokens int    `json:"tokens"`
	// PeakTFLOPS is the rate of fused multiply-adds in fp32 registers, measured before and after each run of a product;
	// nil: on a GPU, or unknown.
	PeakTFLOPS *Sample     `json:"peak_tflops,omitempty"`
	Rows       []MatMulRow `json:"rows"`
	LeftOut    []string    `json:"left_out,omitempty"`

	peaks []float64 // all measurements of the peak
}

// MatMulRow is one product at one shape. TFLOPS counts 2·M·N·K FLOPs for a product, in 10¹² a second.
type MatMulRow struct {
	Name       string `json:"name"` // the weight's role, and the pass
	DType      string `json:"dtype"`
	M          int    `json:"m"`
	N          int    `json:"n"`
	K          int    `json:"k"`
	TransA     bool   `json:"trans_a,omitempty"`
	TransB     bool   `json:"trans_b,omitempty"`
	Accumulate bool   `json:"accumulate,omitempty"` // accumulates into an fp32 gradient
	TFLOPS     Sample `json:"tflops"`
	// OfPeak has the rate of each run divided by the mean of the peaks before and after it; nil: not fp32, or unknown.
	OfPeak       *Sample `json:"of_peak,omitempty"`
	Runs         int     `json:"runs"`
	rates.Beside         // TFLOP/s
}

// named is a matrix product with its name in the report.
type named struct {
	name string
	measure.Product
}

// threeWays returns the three matrix products of one weight (out, in) in a training step over this number of tokens.
// They compute the output, the input's gradient and the weight's gradient.
func threeWays(name string, tokens, out, in int, dt device.DType) []named {
	return []named{
		{name + ", forward", measure.Product{M: tokens, N: out, K: in, TransB: true, DType: dt}},
		{name + ", input's gradient", measure.Product{M: tokens, N: in, K: out, DType: dt}},
		{name + ", weight's gradient", measure.Product{M: out, N: in, K: tokens, TransA: true, DType: dt, Accumulate: true}},
	}
}

// products returns the products to measure in one dtype: for each role in the model the products of one two-dimensional
// weight, and square products.
func (o MatMulOptions) products(dt device.DType) []named {
	var all []named
	seen := map[model.Role]bool{model.RoleEmbed: true} // the embedding's rows are gathered, not multiplied
	if o.Model != nil {
		for _, l := range o.Model.Layers() {
			for _, p := range l.Params {
				if p.Dims == 2 && !seen[p.Role] {
					seen[p.Role] = true
					all = append(all, threeWays(string(p.Role), o.Tokens, p.Rows, p.Cols, dt)...)
				}
			}
		}
	}
	for _, n := range o.Squares {
		all = append(all, threeWays("square "+strconv.Itoa(n), n, n, n, dt)...)
	}
	return all
}

// MatMul measures all products of o in each dtype.
func MatMul(ctx context.Context, o MatMulOptions) (*MatMulReport, error) {
	if len(o.Squares) == 0 {
		o.Squares = [][]int{{64}, {512, 1024, 2048}, {1024, 2048, 4096, 8192}}[o.scale()]
	}
	if o.Tokens == 0 {
		o.Tokens = []int{16, 1024, 8192}[o.scale()]
	}
	r := &MatMulReport{Model: o.Name, Tokens: o.Tokens}
	err := o.with("matmul", func(m *measure.Meter, w Where) error {
		r.Where = w
		if threads := cmp.Or(o.Threads, cores()); o.Device != "cuda" && gemm.PeakFLOPS(threads) > 0 {
			m.Before = func() { r.peaks = append(r.peaks, gemm.PeakFLOPS(threads)/1e12) }
		}
		for _, dt := range o.dtypes(o.DTypes) {
			for _, p := range o.products(dt) {
				if err := r.measure(ctx, o, m, p); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(r.peaks) > 0 {
		r.PeakTFLOPS = new(Summarize(r.peaks))
	}
	return r, nil
}

// shares returns the rates of t's runs as shares of the peak beside each run; nil: the peak is unknown. The last
// len(t.All)+1 measurements of the peak are the ones around these runs.
func (r *MatMulReport) shares(p measure.Product, t measure.Seconds) *Sample {
	if len(r.peaks) == 0 || p.DType != device.F32 {
		return nil
	}
	peaks := r.peaks[len(r.peaks)-len(t.All)-1:]
	shares := make([]float64, len(t.All))
	for i := range shares {
		shares[i] = p.FLOPs() / 1e12 / t.All[i] / ((peaks[i] + peaks[i+1]) / 2)
	}
	return new(Summarize(shares))
}

func (r *MatMulReport) measure(ctx context.Context, o MatMulOptions, m *measure.Meter, p named) error {
	if err := o.next(ctx, "%s: %s", p.name, p.Product); err != nil {
		return err
	}
	t, err := m.Product(p.Product)
	if outOfMemory(err) {
		r.LeftOut = append(r.LeftOut, fmt.Sprintf("%s: %v", p.name, err))
		return nil
	}
	if err != nil {
		return err
	}
	if m.Before != nil {
		m.Before()
	}
	r.Rows = append(r.Rows, MatMulRow{OfPeak: r.shares(p.Product, t), Name: p.name, DType: p.DType.String(), M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB,
		Accumulate: p.Accumulate, TFLOPS: rateOf(p.FLOPs()/1e12, t), Runs: t.Runs,
		Beside: rates.Against(perSecond(p.FLOPs()/1e12, r.machine.ProductSeconds(rates.Product{M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB}, p.DType, p.Accumulate)), p.FLOPs()/1e12/t.Median)})
	return nil
}

// operands formats the transpositions, for example "A·Bᵀ".
func (r MatMulRow) operands() string {
	return SGEMMShape{TransA: r.TransA, TransB: r.TransB, Accumulate: r.Accumulate}.operands()
}

// WriteTable prints the report as a table.
func (r *MatMulReport) WriteTable(w io.Writer) error {
	of := "squares"
	if r.Model != "" {
		of = fmt.Sprintf("%s over %d tokens, and squares", r.Model, r.Tokens)
	}
	if _, err := fmt.Fprintf(w, "matrix products of %s in TFLOP/s, median [least–most]; %s\n%s%s", of, r.Where, r.peak(), busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"product", "dtype", "M", "N", "K", "operands", "TFLOP/s", "of peak", "predicted", "ratio", "runs"}}
	for _, row := range r.Rows {
		predicted, ratio := row.Words()
		rows = append(rows, []string{row.Name, row.DType, strconv.Itoa(row.M), strconv.Itoa(row.N), strconv.Itoa(row.K), row.operands(),
			tera(row.TFLOPS), row.OfPeak.orDash(), predicted, ratio, strconv.Itoa(row.Runs)})
	}
	if err := writeTable(w, r.withPredictions(rows)); err != nil {
		return err
	}
	return writeLeftOut(w, r.LeftOut)
}

// peak returns the line about the processor's peak; "": it is unknown.
func (r *MatMulReport) peak() string {
	if r.PeakTFLOPS == nil {
		return ""
	}
	return fmt.Sprintf("peak of fused multiply-adds in registers, fp32: %s TFLOP/s, measured before and after each run\n", tera(*r.PeakTFLOPS))
}
