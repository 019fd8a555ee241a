package host

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"mt/base/bf16"
	"mt/base/parallel"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// useLevel makes updates use the kernels of instruction set level, such as AVX-512, until the test
// ends.
func useLevel(t *testing.T, level string) {
	t.Helper()
	before := optim.Use(level)
	t.Cleanup(func() { optim.Use(before) })
}

// poolOf returns a thread pool that is closed when the test ends.
func poolOf(t *testing.T, threads int) *parallel.Pool {
	t.Helper()
	p := parallel.New(threads)
	t.Cleanup(p.Close)
	return p
}

// embedding, block and head return small layers. Their sizes are odd, so that vector loops have
// remainders.
func embedding(rows, cols int) model.Layer {
	return model.Layer{Kind: model.Embedding, Params: []model.Param{{Role: model.RoleEmbed, Rows: rows, Cols: cols, Dims: 2}}}
}

func block(index, h, f int) model.Layer {
	return model.Layer{Index: index, Kind: model.Block, Params: []model.Param{
		{Role: model.RoleAttnNorm, Rows: h, Cols: 1, Dims: 1},
		{Role: model.RoleGateUp, Rows: 2 * f, Cols: h, Dims: 2},
		{Role: model.RoleDown, Rows: h, Cols: f, Dims: 2},
	}}
}

func tiedHead(index, h int) model.Layer {
	return model.Layer{Index: index, Kind: model.Head, Tied: true,
		Params: []model.Param{{Role: model.RoleFinalNorm, Rows: h, Cols: 1, Dims: 1}}}
}

// layouts returns the layouts of an embedding, two kinds of layers and a head that is tied to the
// embedding.
func layouts(bf16 bool) []model.Layout {
	embed := embedding(67, 19)
	return []model.Layout{
		model.NewLayout(embed, bf16, model.Param{}),
		model.NewLayout(block(1, 19, 900), bf16, model.Param{}),
		model.NewLayout(tiedHead(2, 19), bf16, embed.Params[0]),
	}
}

// newStore returns a store that is closed when the test ends.
func newStore(t *testing.T, l []model.Layout, pool *parallel.Pool) *Store {
	t.Helper()
	s := testkit.Must(NewStore(l, recipe.Planes, pool))(t)
	testkit.Close(t, s)
	return s
}

// wild returns a random number of any magnitude: usual ones, zeros, subnormal and huge ones.
func wild(r *rand.Rand) float32 {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return math.Float32frombits(r.Uint32() & 0x807fffff) // denormal
	case 2:
		return math.Float32frombits(r.Uint32()&0x80ffffff | 0x7e000000) // huge
	case 3:
		return math.Float32frombits(r.Uint32()&0x80ffffff | 0x00800000) // barely normal
	}
	return float32(r.NormFloat64())
}

// fillStore sets weights and moments to random numbers, which the function number draws.
func fillStore(s *Store, seed uint64, number func(*rand.Rand) float32) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, l := range s.Layers {
		for t, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			row := make([]float32, tl.Elems())
			for i := range row {
				row[i] = number(r)
			}
			l.WriteRows(t, 0, tl.Rows, row)
			m, v := floats(l, "m")[tl.Elem:], floats(l, "v")[tl.Elem:]
			for i := range row {
				m[i], v[i] = number(r), float32(math.Abs(float64(number(r))))
			}
		}
	}
}

// gradOf returns a gradient of n random elements, which the function number draws.
func gradOf(n int64, bf16 bool, seed uint64, number func(*rand.Rand) float32) optim.Grad {
	r := rand.New(rand.NewPCG(seed, 2))
	values := make([]float32, n)
	for i := range values {
		values[i] = number(r)
	}
	return gradFrom(values, bf16)
}

// gradFrom returns a gradient with these values. rounded: its elements are bf16, to which the
// values are rounded.
func gradFrom(values []float32, rounded bool) optim.Grad {
	g := optim.Grad{BF16: rounded, Elems: int64(len(values))}
	words := make([]float32, len(values)) // for the alignment
	g.Data = bytesOf(words)
	if rounded {
		g.Data = g.Data[:2*g.Elems]
	}
	for i, x := range values {
		if rounded {
			optim.View[uint16](g.Data)[i] = bf16.Round(x)
		} else {
			optim.View[float32](g.Data)[i] = x
		}
	}
	return g
}

// values returns the elements of g as fp32.
func values(g optim.Grad) []float32 {
	out := make([]float32, g.Elems)
	for i := range out {
		if g.BF16 {
			out[i] = bf16.Widen(optim.View[uint16](g.Data)[i])
		} else {
			out[i] = optim.View[float32](g.Data)[i]
		}
	}
	return out
}

// sameBits fails the test unless a and b have the same weights and planes, bit for bit. Any two
// NaNs count as equal.
func sameBits(t *testing.T, a, b *Store) {
	t.Helper()
	for i, l := range a.Layers {
		for n, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			want, got := make([]float32, tl.Elems()), make([]float32, tl.Elems())
			l.ReadRows(n, 0, tl.Rows, want)
			b.Layers[i].ReadRows(n, 0, tl.Rows, got)
			sameFloats(t, string(tl.Role)+" weights", want, got)
		}
		for _, name := range []string{"m", "v"} {
			sameFloats(t, name, floats(l, name), floats(b.Layers[i], name))
		}
	}
}

func sameFloats(t *testing.T, what string, want, got []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			t.Fatalf("%s[%d] = %v (%#x), want %v (%#x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// mean returns a random number of the magnitude of weights and gradients.
func mean(r *rand.Rand) float32 { return float32(r.NormFloat64()) }

var (
	recipe = optim.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1}
	rate   = optim.Rate{LR: 1e-2, Step: 3, Clip: 0.625}
)

// floats returns the elements of the plane of l with this name.
func floats(l *LayerState, name string) []float32 { return optim.View[float32](l.Plane(name)) }

// bytesOf views the memory of x as bytes.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
