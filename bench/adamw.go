package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/host"
	"mt/host/optim"
	"mt/model"
)

// AdamWOptions configures AdamW. Zero fields mean the defaults.
type AdamWOptions struct {
	Params  int64 // elements of the one tensor updated; default 64 Mi
	Rounds  int   // measured runs of each contestant; default 9
	Threads []int // default 1 and all cores
}

// AdamWReport compares the memory rates of an optimizer's update and of a copy.
type AdamWReport struct {
	Level  string     `json:"level"` // instruction set of the update: avx512, avx2, generic
	Cores  int        `json:"cores"`
	Params int64      `json:"params"`
	Rounds int        `json:"rounds"`
	Rows   []AdamWRow `json:"rows"`
}

// AdamWRow has the rates of one kind of update on one number of threads. Rates are in GB/s (10⁹ bytes a second, read
// and written).
type AdamWRow struct {
	Planes     string `json:"planes"` // "fp32" or "split": bf16 weights and lower halves
	Grad       string `json:"grad"`   // "fp32" or "bf16"
	Threads    int    `json:"threads"`
	BytesParam int    `json:"bytes_per_param"` // read and written by an update
	AdamW      Sample `json:"adamw_gb_s"`
	Copy       Sample `json:"copy_gb_s"`
	Ratio      Sample `json:"adamw_over_copy"` // of the update and the copy of the same round
	Norm       Sample `json:"norm_gb_s"`       // sum of squares of the gradient, which only reads
}

// AdamW measures the update of o.Params parameters in host memory, and a copy from one plane of that memory to another.
// Both run on the same number of threads and alternate.
func AdamW(o AdamWOptions) (AdamWReport, error) {
	if o.Params == 0 {
		o.Params = 64 << 20
	}
	if o.Rounds == 0 {
		o.Rounds = 9
	}
	if o.Threads == nil {
		o.Threads = slices.Compact([]int{1, runtime.GOMAXPROCS(0)})
	}
	if o.Params < 1<<10 || o.Rounds < 1 || slices.Min(o.Threads) < 1 {
		return AdamWReport{}, fmt.Errorf("bench adamw: %d parameters, %d rounds, threads %v: want at least 1024, 1 and 1",
			o.Params, o.Rounds, o.Threads)
	}
	r := AdamWReport{Level: optim.Level(), Cores: runtime.GOMAXPROCS(0), Params: o.Params, Rounds: o.Rounds}
	for _, split := range []bool{false, true} {
		for _, threads := range o.Threads {
			rows, err := adamWRows(o, split, threads)
			if err != nil {
				return AdamWReport{}, fmt.Errorf("bench adamw: %w", err)
			}
			r.Rows = append(r.Rows, rows...)
		}
	}
	return r, nil
}

// adamWRows measures updates with fp32 gradients and, for split weights, also with bf16 gradients. If split, weights
// are stored as bf16 high halves and lower halves, otherwise as fp32.
func adamWRows(o AdamWOptions, split bool, threads int) (rows []AdamWRow, err error) {
	pool := parallel.New(threads)
	defer pool.Close()
	const cols = 1 << 10
	layer := model.Layer{Kind: model.Block, Params: []model.Param{
		{Role: model.RoleDown, Rows: int(o.Params / cols), Cols: cols, Dims: 2}}}
	layout := model.NewLayout(layer, split, model.Param{})
	store, err := host.NewStore([]model.Layout{layout}, benchRecipe.Planes, pool)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	slab, err := host.NewArena(accounts.GradientSlabs, 4*layout.Elems, pool)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, slab.Close()) }()
	for _, bf16 := range []bool{false, true} {
		if bf16 && !split {
			continue // bf16 gradients exist with split weights only
		}
		grad := optim.Grad{Data: slab.Bytes(), BF16: bf16, Elems: layout.Elems}
		fillGradient(grad)
		rows = append(rows, adamWRow(o.Rounds, store, pool, grad, split))
	}
	return rows, nil
}

// benchRecipe is the optimizer that AdamW measures, with common hyperparameters.
var benchRecipe optim.Optimizer = optim.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}

// adamWRow measures one row of AdamW's report: in each round it times an update, a copy and a
// gradient norm with the gradient grad.
func adamWRow(rounds int, store *host.Store, pool *parallel.Pool, grad optim.Grad, split bool) AdamWRow {
	row := AdamWRow{Planes: "fp32", Grad: "fp32", Threads: pool.Threads()}
	if split {
		row.Planes = "split"
	}
	if grad.BF16 {
		row.Grad = "bf16"
	}
	l := store.Layers[0]
	at, from, to := optim.Rate{LR: 1e-4, Clip: 0.5}, optim.View[float32](l.Planes[1].Data), optim.View[float32](l.Planes[0].Data)
	times := Alternate(rounds,
		func() { at.Step++; l.Update(grad, benchRecipe, at) },
		func() { copyAll(pool, to, from) },
		func() { optim.SumSquares(pool, grad) })
	row.rates(grad.Elems, keptBytes(l.Planes), times[0], times[1], times[2])
	return row
}

// keptBytes returns the bytes stored for one parameter: 4 for the weight, fp32 or split into two halves of 2, and the
// bytes of the optimizer's planes.
func keptBytes(planes []optim.State) int {
	bytes := 4
	for _, p := range planes {
		bytes += int(p.DType.Bytes(1))
	}
	return bytes
}

// rates sets the rates of the row from the times of updates, copies and gradient norms. elems is
// the number of parameters. `kept` is the number of bytes of weights and planes per parameter.
func (row *AdamWRow) rates(elems int64, kept int, updates, copies, norms []time.Duration) {
	gradBytes := 4
	if row.Grad == "bf16" {
		gradBytes = 2
	}
	row.BytesParam = 2*kept + gradBytes // weights and planes are read and written, the gradient is read
	gigabytes := float64(elems) / 1e9   // 10⁹ bytes of an array with one byte for each parameter
	update, copied := Rates(float64(row.BytesParam)*gigabytes, updates), Rates(2*4*gigabytes, copies)
	row.AdamW, row.Copy, row.Ratio = Summarize(update), Summarize(copied), Summarize(Ratios(update, copied))
	row.Norm = Summarize(Rates(float64(gradBytes)*gigabytes, norms))
}

// copyAll copies src to dst on all threads of pool. The pieces are so long that Go's copy uses its fast path for long
// ranges.
func copyAll(pool *parallel.Pool, dst, src []float32) {
	const piece = 2 << 20
	pool.Run((len(src)+piece-1)/piece, func(i int) {
		end := min(len(src), (i+1)*piece)
		copy(dst[i*piece:end], src[i*piece:end])
	})
}

// fillGradient sets all elements of g to pseudorandom numbers between −0.0005 and 0.0005, a typical size of gradients.
func fillGradient(g optim.Grad) {
	state := uint32(1)
	next := func() float32 {
		state = state*1664525 + 1013904223
		return (float32(state>>8)/(1<<24) - 0.5) * 1e-3
	}
	for i := range int(g.Elems) {
		bits := math.Float32bits(next())
		if g.BF16 {
			binary.NativeEndian.PutUint16(g.Data[2*i:], uint16(bits>>16))
		} else {
			binary.NativeEndian.PutUint32(g.Data[4*i:], bits)
		}
	}
}

// WriteTable prints the report as a table.
func (r AdamWReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "AdamW over %d parameters, %s, %d cores, median (least to most) of %d rounds, GB/s\n",
		r.Params, r.Level, r.Cores, r.Rounds); err != nil {
		return err
	}
	rows := [][]string{{"weights", "gradient", "threads", "AdamW", "copy", "AdamW / copy", "norm"}}
	for _, row := range r.Rows {
		rows = append(rows, []string{row.Planes, row.Grad, strconv.Itoa(row.Threads), row.AdamW.String(),
			row.Copy.String(), row.Ratio.String(), row.Norm.String()})
	}
	return writeTable(w, rows)
}
