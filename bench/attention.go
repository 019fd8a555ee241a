package bench

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"mt/device"
	"mt/internal/doctor/measure"
	"mt/plan/rates"
)

// AttentionOptions configures Attention. Zero fields mean the defaults.
type AttentionOptions struct {
	OnDevice
	DTypes  []device.DType // default: fp32 on a CPU, bf16 and fp32 on a GPU
	Lengths []int          // sequence lengths to measure, in tokens; default 128 … 2048 on a CPU, 1024 … 32768 on a GPU
	Dims    []int          // head dimensions; default 64, 128
	Width   int            // heads times dim; default 512 on a CPU, 4096 on a GPU
	Groups  int            // query heads for each key/value head; default 4
	Tokens  int            // least number of tokens in a launch, rounded up to whole sequences; default 2048 on a CPU, 16384 on a GPU
}

func (o AttentionOptions) filled() AttentionOptions {
	scale := o.scale()
	if len(o.Lengths) == 0 {
		o.Lengths = [][]int{{32}, {128, 512, 1024, 2048}, {1024, 4096, 8192, 32768}}[scale]
	}
	if len(o.Dims) == 0 {
		o.Dims = []int{64, 128}
	}
	for _, f := range []struct {
		to    *int
		value int
	}{{&o.Width, []int{256, 512, 4096}[scale]}, {&o.Groups, 4}, {&o.Tokens, []int{32, 2048, 16384}[scale]}} {
		if *f.to == 0 {
			*f.to = f.value
		}
	}
	o.DTypes = o.dtypes(o.DTypes)
	return o
}

// AttentionReport has the speed of causal attention by sequence length and head dimension.
type AttentionReport struct {
	Where
	Rows    []AttentionRow `json:"rows"`
	LeftOut []string       `json:"left_out,omitempty"`
}

// AttentionRow is one shape, forward or backward. TFLOPS counts 10¹² FLOPs a second, without the half that the causal
// mask removes. The forward counts two matrix products, the backward five.
type AttentionRow struct {
	Way          string `json:"way"` // forward or backward
	DType        string `json:"dtype"`
	Length       int    `json:"length"`
	Tokens       int    `json:"tokens"`
	Heads        int    `json:"heads"`
	KVHeads      int    `json:"kv_heads"`
	Dim          int    `json:"dim"`
	TFLOPS       Sample `json:"tflops"`
	Runs         int    `json:"runs"`
	rates.Beside        // TFLOP/s
}

// Attention measures the forward and the backward of every combination of dtype, head dimension and sequence length.
func Attention(ctx context.Context, o AttentionOptions) (*AttentionReport, error) {
	o = o.filled()
	r := &AttentionReport{}
	err := o.with("attention", func(m *measure.Meter, w Where) error {
		r.Where = w
		for _, dt := range o.DTypes {
			for _, dim := range o.Dims {
				for _, length := range o.Lengths {
					for _, backward := range []bool{false, true} {
						if err := r.measure(ctx, o, m, o.shape(dt, dim, length, backward)); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// shape returns the shape of one launch to measure. It has at least o.Tokens tokens in whole
// sequences of the given length, and as many heads of dim elements as o.Width holds.
func (o AttentionOptions) shape(dt device.DType, dim, length int, backward bool) measure.Attention {
	heads := max(1, o.Width/dim)
	kv := max(1, heads/o.Groups)
	for heads%kv != 0 {
		kv--
	}
	return measure.Attention{Tokens: max(1, (o.Tokens+length-1)/length) * length, Length: length, Heads: heads, KVHeads: kv, Dim: dim, DType: dt, Backward: backward}
}

func (r *AttentionReport) measure(ctx context.Context, o AttentionOptions, m *measure.Meter, a measure.Attention) error {
	if err := o.next(ctx, "attention, %s", a); err != nil {
		return err
	}
	t, err := m.Attention(a)
	if outOfMemory(err) {
		r.LeftOut = append(r.LeftOut, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	way := "forward"
	if a.Backward {
		way = "backward"
	}
	r.Rows = append(r.Rows, AttentionRow{Way: way, DType: a.DType.String(), Length: a.Length, Tokens: a.Tokens, Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.Dim,
		TFLOPS: rateOf(a.FLOPs()/1e12, t), Runs: t.Runs, Beside: rates.Against(perSecond(a.FLOPs()/1e12, r.machine.AttentionSeconds(a.Tokens, a.Length, a.Heads, a.KVHeads, a.Dim, a.DType, a.Backward)), a.FLOPs()/1e12/t.Median)})
	return nil
}

// WriteTable prints the report as a table.
func (r *AttentionReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "causal attention in TFLOP/s (what is masked does not count), median [least–most]; %s\n%s", r.Where, busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"way", "dtype", "length", "tokens", "heads", "dim", "TFLOP/s", "predicted", "ratio", "runs"}}
	for _, row := range r.Rows {
		predicted, ratio := row.Words()
		rows = append(rows, []string{row.Way, row.DType, strconv.Itoa(row.Length), strconv.Itoa(row.Tokens), fmt.Sprintf("%d/%d", row.Heads, row.KVHeads),
			strconv.Itoa(row.Dim), tera(row.TFLOPS), predicted, ratio, strconv.Itoa(row.Runs)})
	}
	if err := writeTable(w, r.withPredictions(rows)); err != nil {
		return err
	}
	return writeLeftOut(w, r.LeftOut)
}

// tera formats a rate in TFLOP/s. Rates below 10, as on CPUs, get three significant digits.
func tera(s Sample) string {
	if s.Max >= 10 {
		return fmt.Sprintf("%.1f [%.1f–%.1f]", s.Median, s.Min, s.Max)
	}
	return fmt.Sprintf("%.3g [%.3g–%.3g]", s.Median, s.Min, s.Max)
}
