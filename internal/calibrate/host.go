package calibrate

import (
	"context"
	"math"
	"runtime"
	"time"

	"mt/data"
	"mt/device"
	"mt/internal/measure"
	"mt/plan/rates"
)

// dtypes are those that layers are computed in.
var dtypes = []struct {
	name  string
	dtype device.DType
}{{"bf16", device.BF16}, {"fp32", device.F32}}

// shapes are what is measured.
type shapes struct {
	products   [][3]int // M, N, K
	lengths    []int    // of sequences
	dims       []int    // of heads
	tokens     int      // at least, of attention
	operations [2][2]int
	copies     int64    // bytes
	params     [2]int64 // of layers that are updated
	rows       [2]int   // that are gathered
	file       int64    // bytes
}

// shapesFor are the shapes for a kind of device: small and large ones, since rates grow with the
// size, and wide and deep ones, as MLPs have them.
func shapesFor(kind string, small bool) shapes {
	s := shapes{lengths: []int{64, 256, 1024}, dims: []int{32, 64, 128}, tokens: 1024, operations: [2][2]int{{64, 128}, {2048, 256}}, copies: 64 << 20,
		params: [2]int64{1 << 16, 16 << 20}, rows: [2]int{16, 4096}, file: 256 << 20}
	sizes := []int{128, 512, 1024}
	switch {
	case small:
		s = shapes{lengths: []int{16}, dims: []int{64, 128}, tokens: 16, operations: [2][2]int{{2, 64}, {32, 64}}, copies: 1 << 16,
			params: [2]int64{1 << 10, 1 << 14}, rows: [2]int{2, 64}, file: 1 << 16}
		sizes = []int{32}
	case kind == "cuda":
		s.lengths, s.dims, s.tokens, s.copies, s.operations = []int{512, 2048, 8192}, []int{64, 128}, 16384, 256<<20, [2][2]int{{64, 128}, {8192, 4096}}
		s.params[1], sizes = 64<<20, []int{512, 2048, 4096, 8192}
	}
	for _, n := range sizes {
		s.products = append(s.products, [3]int{n, n, n}, [3]int{n, 4 * n, n}, [3]int{n, n, 4 * n})
	}
	return s
}

// host measures what the host does beside the device.
func (r *run) host(ctx context.Context) error {
	h := &r.out.Host
	h.Name, h.Cores, h.Memory = r.o.Host, runtime.GOMAXPROCS(0), rates.Round(available())
	t, err := measure.Memcpy(r.pool, r.shapes.copies, r.timing)
	if err != nil {
		return err
	}
	h.Bandwidth = rates.Round(2 * float64(r.shapes.copies) / t.Median / 1e9)
	// On a GPU weights are split into planes, as bf16 is computed there.
	split := r.o.Device.Kind() == "cuda"
	var update, norm, gather, updated, read, gathered []float64
	others := map[string]*[2][]float64{} // seconds and bytes
	for i := range 2 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		u := measure.Update{Params: r.shapes.params[i], Split: split}
		up, sum, err := u.Measure(r.pool, r.timing)
		if err != nil {
			return err
		}
		for name, by := range measure.Optimizers {
			if others[name] == nil {
				others[name] = new([2][]float64)
			}
			u := measure.Update{Params: u.Params, Split: split, By: by}
			up, _, err := u.Measure(r.pool, r.timing)
			if err != nil {
				return err
			}
			others[name][0], others[name][1] = append(others[name][0], up.Median), append(others[name][1], float64(u.Bytes()))
		}
		update, updated = append(update, up.Median), append(updated, float64(u.Bytes()))
		norm, read = append(norm, sum.Median), append(read, float64(u.GradBytes()))
		g, bytes, err := measure.Gather(r.pool, 4*r.shapes.rows[1], r.shapes.rows[i], 1024, split, r.timing)
		if err != nil {
			return err
		}
		gather, gathered = append(gather, g.Median), append(gathered, 2*float64(bytes))
	}
	h.Update, h.Norm, h.Gather = rates.Line(update, updated), rates.Line(norm, read), rates.Line(gather, gathered)
	h.Updates = map[string]rates.Op{}
	for name, of := range others {
		h.Updates[name] = rates.Line(of[0], of[1])
	}
	h.Pack, h.Message = rates.Round(packed()), messageTime
	h.Sources = map[string]string{"message_us": "not measured: half a round trip between two actors, of an EPYC (Zen 5)",
		"memory_gib": "what a run could take when this was measured"}
	return nil
}

// messageTime is what a message between two actors takes that have nothing else to do, in µs.
const messageTime = 1.8

// packed is what packing takes, in seconds for a million tokens.
func packed() float64 {
	const rows, length = 32, 2048
	all := make([]data.Row, rows)
	for i := range all {
		all[i].IDs = make([]int32, length)
		for j := range all[i].IDs {
			all[i].IDs[j] = int32((i*length + j) * 7919 % 100003)
		}
	}
	best := math.Inf(1)
	for range 3 {
		begin := time.Now()
		data.NewBatch(1, all, 8*length)
		best = min(best, time.Since(begin).Seconds())
	}
	return best * 1e6 / (rows * length)
}

// disk measures a file in the folder of the options.
func (r *run) disk(context.Context) error {
	write, read, err := measure.Disk(r.o.Dir, r.shapes.file, measure.Options{Runs: 3, Most: 3 * time.Second})
	if err != nil {
		return err
	}
	r.out.Disk = rates.Disk{Write: rates.Round(float64(r.shapes.file) / write.Median / 1e9), Read: rates.Round(float64(r.shapes.file) / read.Median / 1e9)}
	return nil
}
