package host

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"mt/model"
)

// PyTorch's formula in float64, from fp32 gradients. After ten steps each fp32
// weight is off by some 10 roundings of its own (2⁻²⁴ of at most 8) and of an
// update (at most lr·10·2⁻²⁰): 1e-5 covers both and is a thousandth of one
// update.
func TestUpdateFollowsTheFormula(t *testing.T) {
	const bound = 1e-5
	for _, bf16 := range []bool{false, true} {
		s := newStore(t, layouts(bf16), poolOf(t, 2))
		fillStore(s, 7, mean)
		l := s.Layers[1]
		clear(l.M)
		clear(l.V)
		for n, tl := range l.Layout.Tensors {
			// Matrices decay, norms do not.
			decays, known := map[model.Role]bool{model.RoleAttnNorm: false, model.RoleGateUp: true, model.RoleDown: true}[tl.Role]
			if !known {
				t.Fatalf("does %s decay?", tl.Role)
			}
			w32 := make([]float32, tl.Elems())
			l.ReadRows(n, 0, tl.Rows, w32)
			w, m, v := make([]float64, len(w32)), make([]float64, len(w32)), make([]float64, len(w32))
			for i, x := range w32 {
				w[i] = float64(x)
			}
			a := recipe
			a.Eps = 0.1 // large enough to show where it belongs
			for a.Step = 1; a.Step <= 10; a.Step++ {
				g := gradOf(tl.Elems(), false, uint64(a.Step), mean)
				s.UpdateTensor(1, n, g, a)
				reference(w, m, v, g.values(), a, decays)
			}
			l.ReadRows(n, 0, tl.Rows, w32)
			for i := range w {
				if off := math.Abs(w[i] - float64(w32[i])); !(off < bound) {
					t.Fatalf("bf16 %t: %s[%d] = %v, want %v", bf16, tl.Role, i, w32[i], w[i])
				}
			}
		}
	}
}

// reference is one step in float64.
func reference(w, m, v []float64, g []float32, a AdamW, decay bool) {
	bc1 := 1 - math.Pow(a.Beta1, float64(a.Step))
	bc2 := 1 - math.Pow(a.Beta2, float64(a.Step))
	for i := range w {
		x := float64(g[i]) * float64(a.Clip)
		if decay {
			w[i] -= a.LR * a.WeightDecay * w[i]
		}
		m[i] = a.Beta1*m[i] + (1-a.Beta1)*x
		v[i] = a.Beta2*v[i] + (1-a.Beta2)*x*x
		w[i] -= a.LR * (m[i] / bc1) / (math.Sqrt(v[i]/bc2) + a.Eps)
	}
}

// Every level on any number of threads against plain Go on one.
func TestUpdateHasTheSameBitsEverywhere(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		for _, gradBF16 := range []bool{false, true} {
			want := updated(t, &generic, 1, bf16, gradBF16)
			for _, k := range available() {
				for _, threads := range []int{1, 2, 5} {
					t.Run(fmt.Sprintf("split %t grad bf16 %t %s %d threads", bf16, gradBF16, k.name, threads), func(t *testing.T) {
						sameBits(t, want, updated(t, k, threads, bf16, gradBF16))
					})
				}
			}
		}
	}
}

// updated is a store after updates of all kinds from and by wild numbers.
func updated(t *testing.T, k *kernels, threads int, bf16, gradBF16 bool) *Store {
	useKernels(t, k)
	s := newStore(t, layouts(bf16), poolOf(t, threads))
	fillStore(s, 3, wild)
	a := recipe
	for a.Step = 1; a.Step <= 2; a.Step++ {
		seed := uint64(a.Step)
		table := s.Layers[0].Layout.Tensors[0]
		ids := []int32{0, 1, 5, 17, 18, 19, 66}
		s.UpdateRows(0, ids, gradOf(int64(len(ids)*table.Cols), gradBF16, seed, wild), a)
		s.UpdateTensor(0, 0, gradOf(table.Elems(), gradBF16, seed+10, wild), a)
		s.Update(1, gradOf(s.Layers[1].Layout.Elems, gradBF16, seed+20, wild), a)
		s.Update(2, gradOf(s.Layers[2].Layout.GradElems, gradBF16, seed+30, wild), a)
	}
	return s
}

func TestUpdateRowsIsUpdateWithZeros(t *testing.T) {
	const rows, cols = 5000, 19
	for _, bf16 := range []bool{false, true} {
		for _, gradBF16 := range []bool{false, true} {
			for _, k := range available() {
				useKernels(t, k)
				l := layouts(bf16)[:1]
				l[0] = bigEmbedding(rows, cols, bf16)
				sparse, dense := newStore(t, l, poolOf(t, 3)), newStore(t, l, poolOf(t, 3))
				fillStore(sparse, 9, wild)
				fillStore(dense, 9, wild)
				r := rand.New(rand.NewPCG(4, 4))
				full := make([]float32, l[0].Elems)
				var ids []int32
				var few []float32
				for row := range rows {
					if r.IntN(3) > 0 {
						continue
					}
					ids = append(ids, int32(row))
					for c := range cols {
						full[row*cols+c] = mean(r)
					}
					few = append(few, full[row*cols:(row+1)*cols]...)
				}
				sparse.UpdateRows(0, ids, gradFrom(few, gradBF16), recipe)
				dense.Update(0, gradFrom(full, gradBF16), recipe)
				sameBits(t, dense, sparse)
			}
		}
	}
}

func TestUpdateRowsWithoutIDs(t *testing.T) {
	l := layouts(true)[:1]
	sparse, dense := newStore(t, l, nil), newStore(t, l, nil)
	fillStore(sparse, 9, mean)
	fillStore(dense, 9, mean)
	sparse.UpdateRows(0, nil, Grad{}, recipe)
	dense.Update(0, gradFrom(make([]float32, l[0].Elems), true), recipe)
	sameBits(t, dense, sparse)
	if sparse.Layers[0].M[0] == 0 {
		t.Error("the table did not move")
	}
}

// A gradient that is not finite must be visible in weights and moments: nothing
// may turn it into a number.
func TestUpdateKeepsNonFinite(t *testing.T) {
	for _, k := range available() {
		useKernels(t, k)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			s := newStore(t, layouts(false), nil)
			g := gradFrom(make([]float32, s.Layers[1].Layout.Elems), false)
			tl := s.Layers[1].Layout.Tensors[1]
			view[float32](g.Data)[tl.Elem+7] = bad
			s.Update(1, g, recipe)
			w, m := s.Layers[1].F32Plane(1)[7], s.Layers[1].M[tl.Elem+7]
			if w == w || !(m != m || math.IsInf(float64(m), 0)) {
				t.Errorf("%s: gradient %v gives w %v, m %v", k.name, bad, w, m)
			}
			if x := s.Layers[1].F32Plane(1)[6]; x != 0 {
				t.Errorf("%s: its neighbour is %v", k.name, x)
			}
		}
	}
}

// A moment without gradients ends at zero, not among the denormals.
func TestMomentEndsAtZero(t *testing.T) {
	for _, k := range available() {
		useKernels(t, k)
		s := newStore(t, layouts(true)[:1], nil)
		l := s.Layers[0]
		for i := range l.M {
			l.M[i] = 1
		}
		a := recipe
		for a.Step = 1; a.Step < 1000; a.Step++ {
			s.UpdateRows(0, nil, Grad{}, a)
		}
		for i, m := range l.M[:l.Layout.Tensors[0].Elems()] {
			if m != 0 {
				t.Fatalf("%s: m[%d] = %v after %d steps", k.name, i, m, a.Step)
			}
		}
	}
}

func TestUpdateLeavesPaddingAndNeighbours(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		s := newStore(t, layouts(bf16), nil)
		g := gradOf(s.Layers[1].Layout.Elems, false, 1, mean)
		s.Update(1, g, recipe)
		l := s.Layers[1].Layout
		for i, tl := range l.Tensors {
			end := l.Elems
			if i+1 < len(l.Tensors) {
				end = l.Tensors[i+1].Elem
			}
			for e := tl.Elem + tl.Elems(); e < end; e++ {
				if s.Layers[1].M[e] != 0 || s.Layers[1].V[e] != 0 {
					t.Fatalf("%s: padding element %d moved", tl.Role, e)
				}
			}
		}
		for _, n := range []int{0, 2} {
			for _, b := range s.Layers[n].Tile {
				if b != 0 {
					t.Fatalf("layer %d moved with layer 1", n)
				}
			}
		}
	}
}

func TestMisuseOfUpdatePanics(t *testing.T) {
	s := newStore(t, layouts(false), nil)
	zero := recipe
	zero.Step = 0
	table := s.Layers[0].Layout.Elems
	full := gradFrom(make([]float32, table), false)
	shifted := Grad{Data: make([]byte, 4*table+4)[2:], Elems: table}
	tests := map[string]func(){
		"step 0":                 func() { s.Update(0, full, zero) },
		"short gradient":         func() { s.Update(1, full, recipe) },
		"elements without bytes": func() { s.Update(0, Grad{Data: full.Data[4:], Elems: table}, recipe) },
		"shifted gradient":       func() { s.Update(0, shifted, recipe) },
		"a reference":            func() { s.UpdateTensor(2, 1, full, recipe) },
		"another tensor's":       func() { s.UpdateTensor(2, 0, full, recipe) },
		"ids that fall":          func() { s.UpdateRows(0, []int32{2, 1}, full, recipe) },
		"an id twice":            func() { s.UpdateRows(0, []int32{2, 2}, full, recipe) },
		"an id too large":        func() { s.UpdateRows(0, []int32{67}, full, recipe) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) { mustPanic(t, f) })
	}
}
