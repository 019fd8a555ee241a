package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"mt/base/parallel"
	"mt/device/cpu/gemm"
	"mt/device/cpu/openblas"
)

// SGEMMShape is a matrix product D (M,N) = op(A) (M,K) · op(B) (K,N), where op transposes or does nothing.
type SGEMMShape struct {
	Name       string `json:"name"`
	M          int    `json:"m"`
	N          int    `json:"n"`
	K          int    `json:"k"`
	TransA     bool   `json:"trans_a"`
	TransB     bool   `json:"trans_b"`
	Accumulate bool   `json:"accumulate"`
}

// SGEMMShapes returns the measured shapes. Square products have sizes 512 to 2048, with one or no operand transposed.
// The others are the products of a training step over 2048 tokens. They compute the forward, the input's gradient and
// the weight's gradient, which is added to D.
func SGEMMShapes() []SGEMMShape {
	var shapes []SGEMMShape
	for _, n := range []int{512, 1024, 2048} {
		shapes = append(shapes,
			SGEMMShape{Name: "square", M: n, N: n, K: n},
			SGEMMShape{Name: "square", M: n, N: n, K: n, TransB: true},
			SGEMMShape{Name: "square", M: n, N: n, K: n, TransA: true})
	}
	const tokens = 2048
	for _, w := range [][2]int{{256, 256}, {256, 1408}, {704, 256}, {1024, 1024}, {1024, 2816}, {2816, 1024}, {1024, 4096}} {
		in, out := w[0], w[1]
		shapes = append(shapes,
			SGEMMShape{Name: "forward", M: tokens, N: out, K: in, TransB: true},
			SGEMMShape{Name: "d input", M: tokens, N: in, K: out},
			SGEMMShape{Name: "d weight", M: out, N: in, K: tokens, TransA: true, Accumulate: true})
	}
	return shapes
}

// SGEMMOptions configures SGEMM. The zero value is usable.
type SGEMMOptions struct {
	Threads int           // 0: runtime.GOMAXPROCS
	Rounds  int           // rounds; in each, both sides run once; 0: 7
	Sample  time.Duration // approximate time of a side in a round; 0: 100 ms
	// Rest is the pause before each side runs. During the pause the idle threads of the side that ran before stop
	// spinning and free the cores. 0: 30 ms more than openblas.Library.Spins.
	Rest   time.Duration
	Shapes []SGEMMShape // nil: SGEMMShapes
}

// SGEMMReport is the output of `mt bench sgemm`.
type SGEMMReport struct {
	Level   string `json:"level"` // instruction set of package gemm
	Threads int    `json:"threads"`
	Rounds  int    `json:"rounds"`
	// Load is the machine's load average before the start.
	Load float64 `json:"load_before"`
	// Peer is nil without OpenBLAS; NoPeer is then the reason.
	Peer   *SGEMMPeer `json:"peer,omitempty"`
	NoPeer string     `json:"no_peer,omitempty"`
	Rows   []SGEMMRow `json:"rows"`
	// Geomean is the geometric mean of the rows' median ratios; 0 if there is no peer.
	Geomean float64 `json:"geomean_ratio,omitempty"`
}

// SGEMMPeer is the library that package gemm is compared with.
type SGEMMPeer struct {
	Name   string `json:"name"` // OpenBLAS, MKL
	Path   string `json:"path"`
	Config string `json:"config"`
	Core   string `json:"core"`
}

// SGEMMRow has the rates of one shape in GFLOP/s. The rate of a round is the rate of the fastest call in the round.
// Ratio divides our rate by the peer's rate of the same round.
type SGEMMRow struct {
	SGEMMShape
	Ours  Sample  `json:"ours_gflops"`
	Peer  *Sample `json:"peer_gflops,omitempty"`
	Ratio *Sample `json:"ratio,omitempty"`
	// OfPeak and PeerOfPeak divide both rates by the rate of gemm.Peak in the same round; nil: it is unknown.
	OfPeak     *Sample `json:"of_peak,omitempty"`
	PeerOfPeak *Sample `json:"peer_of_peak,omitempty"`
}

// SGEMM measures package gemm and OpenBLAS in turns on the same shapes. If no OpenBLAS is found, it measures package
// gemm only. If MT_OPENBLAS names a library that cannot be loaded, it returns an error.
func SGEMM(ctx context.Context, o SGEMMOptions) (*SGEMMReport, error) {
	o.setDefaults()
	pool := parallel.New(o.Threads)
	defer pool.Close()
	r := &SGEMMReport{Level: gemm.Level(), Threads: pool.Threads(), Rounds: o.Rounds, Load: loadNow()}

	var spins time.Duration
	library, err := openblas.Open()
	switch {
	case errors.Is(err, openblas.ErrNotFound):
		r.NoPeer = err.Error()
	case err != nil:
		return nil, fmt.Errorf("bench sgemm: %w", err)
	default:
		library.SetThreads(pool.Threads())
		spins = library.Spins
		r.Peer = &SGEMMPeer{Name: library.Name, Path: library.Path, Config: library.Config, Core: library.Core}
	}

	o.Rest = cmp.Or(o.Rest, spins+30*time.Millisecond)
	ws := new(gemm.Workspace)
	var medians []float64
	peak, peakFLOPs := gemm.Peak(pool)
	for _, shape := range o.Shapes {
		p := shape.product()
		sides := []func(){func() { p.Gemm(pool, ws) }}
		if library != nil {
			sides = append(sides, func() { library.Multiply(p) })
		}
		if peak != nil {
			sides = append(sides, peak)
		}
		times, err := o.measure(ctx, sides)
		if err != nil {
			return nil, fmt.Errorf("bench sgemm: %w", err)
		}
		var limit []float64
		if last := len(times) - 1; peak != nil {
			limit, times = Rates(peakFLOPs/1e9, times[last]), times[:last]
		}
		row := shape.row(p.FLOPs(), times, limit)
		if row.Ratio != nil {
			medians = append(medians, row.Ratio.Median)
		}
		r.Rows = append(r.Rows, row)
	}
	if library != nil {
		r.Geomean = geomean(medians)
	}
	return r, nil
}

func (o *SGEMMOptions) setDefaults() {
	if o.Rounds <= 0 {
		o.Rounds = 7
	}
	if o.Sample <= 0 {
		o.Sample = 100 * time.Millisecond
	}
	if o.Shapes == nil {
		o.Shapes = SGEMMShapes()
	}
}

// product allocates the operands of s. The elements are small whole numbers, so that products added to D again and
// again stay exact.
func (s SGEMMShape) product() *openblas.Product {
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		return x
	}
	return &openblas.Product{
		M: s.M, N: s.N, K: s.K, TransA: s.TransA, TransB: s.TransB, Accumulate: s.Accumulate,
		A: fill(s.M * s.K), B: fill(s.K * s.N), D: fill(s.M * s.N),
	}
}

// row summarizes the rounds of one shape, whose product takes flops FLOPs. times[0] has our times, and times[1] the
// peer's if there is a peer. peak has the processor's peak of each round in GFLOP/s; nil: unknown.
func (s SGEMMShape) row(flops float64, times [][]time.Duration, peak []float64) SGEMMRow {
	ours := Rates(flops/1e9, times[0])
	row := SGEMMRow{SGEMMShape: s, Ours: Summarize(ours)}
	if peak != nil {
		row.OfPeak = new(Summarize(Ratios(ours, peak)))
	}
	if len(times) > 1 {
		peer := Rates(flops/1e9, times[1])
		if row.Peer, row.Ratio = beside(ours, peer); peak != nil {
			row.PeerOfPeak = new(Summarize(Ratios(peer, peak)))
		}
	}
	return row
}

// measure runs the sides in turns, o.Rounds times. It returns, for each side and round, the time of the fastest call.
// The side that runs first changes from round to round.
func (o *SGEMMOptions) measure(ctx context.Context, sides []func()) ([][]time.Duration, error) {
	times := make([][]time.Duration, len(sides))
	for round := range o.Rounds {
		for i := range sides {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			side := (i + round) % len(sides)
			time.Sleep(o.Rest)
			times[side] = append(times[side], fastest(sides[side], o.Sample))
		}
	}
	return times, nil
}

// fastest calls f once to warm up, and then again and again until total has passed. It returns the time of the fastest
// call.
func fastest(f func(), total time.Duration) time.Duration {
	f()
	best := time.Duration(math.MaxInt64)
	for began := time.Now(); ; {
		start := time.Now()
		f()
		end := time.Now()
		best = min(best, end.Sub(start))
		if end.Sub(began) >= total {
			return max(best, 1)
		}
	}
}

// WriteTable prints r as a table.
func (r *SGEMMReport) WriteTable(w io.Writer) error {
	about := r.NoPeer
	if r.Peer != nil {
		about = fmt.Sprintf("against %s, %s", r.Peer.Name, r.Peer.Path)
		if r.Peer.Config != "" {
			about += fmt.Sprintf(" (%s, core %s)", r.Peer.Config, r.Peer.Core)
		}
	}
	if _, err := fmt.Fprintf(w, "fp32 matrix products, %s, %d threads, median [range] of %d rounds\n%s\n%s",
		r.Level, r.Threads, r.Rounds, about, busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"product", "M", "N", "K", "operands", "GFLOP/s", "of peak"}}
	if r.Peer != nil {
		rows[0] = append(rows[0], r.Peer.Name, "of peak", "ratio")
	}
	for _, row := range r.Rows {
		cells := []string{row.Name, fmt.Sprint(row.M), fmt.Sprint(row.N), fmt.Sprint(row.K), row.operands(), fmt.Sprintf("%.0f", row.Ours.Median), row.OfPeak.orDash()}
		if row.Peer != nil {
			cells = append(cells, fmt.Sprintf("%.0f", row.Peer.Median), row.PeerOfPeak.orDash(), row.Ratio.String())
		}
		rows = append(rows, cells)
	}
	if err := writeTable(w, rows); err != nil || r.Peer == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "geometric mean of the ratios: %.2f\n", r.Geomean)
	return err
}

// operands formats the product's transpositions, for example "A·Bᵀ".
func (s SGEMMShape) operands() string {
	a, b, c := "A", "B", ""
	if s.TransA {
		a = "Aᵀ"
	}
	if s.TransB {
		b = "Bᵀ"
	}
	if s.Accumulate {
		c = " + D"
	}
	return a + "·" + b + c
}
