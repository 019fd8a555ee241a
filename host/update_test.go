package host

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/base/accounts"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// TestUpdateFollowsTheFormula compares ten steps with PyTorch's formula in float64. Ten updates
// round an fp32 weight of at most 8 ten times, each by 2⁻²⁴ relative (5e-6 together), and have
// errors of at most lr·10·2⁻²⁰ themselves. The bound 1e-5 covers both and is a thousandth of one
// update.
func TestUpdateFollowsTheFormula(t *testing.T) {
	const bound = 1e-5
	for _, bf16 := range []bool{false, true} {
		s := newStore(t, layouts(bf16), poolOf(t, 2))
		fillStore(s, 7, mean)
		l := s.Layers[1]
		clear(l.Plane("m"))
		clear(l.Plane("v"))
		for n, tl := range l.Layout.Tensors {
			// Weight decay applies to matrices and not to norms.
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
			a, rate := recipe, rate
			a.Eps = 0.1 // so large that it shows whether it is added in the right place
			for rate.Step = 1; rate.Step <= 10; rate.Step++ {
				g := gradOf(tl.Elems(), false, uint64(rate.Step), mean)
				s.Layers[1].UpdateTensor(n, g, a, rate)
				reference(w, m, v, values(g), a, rate, decays)
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

// reference makes one step of AdamW in float64, in the order of PyTorch's formula.
func reference(w, m, v []float64, g []float32, a optim.AdamW, rate optim.Rate, decay bool) {
	bc1 := 1 - math.Pow(a.Beta1, float64(rate.Step))
	bc2 := 1 - math.Pow(a.Beta2, float64(rate.Step))
	for i := range w {
		x := float64(g[i]) * float64(rate.Clip)
		if decay {
			w[i] -= rate.LR * a.WeightDecay * w[i]
		}
		m[i] = a.Beta1*m[i] + (1-a.Beta1)*x
		v[i] = a.Beta2*v[i] + (1-a.Beta2)*x*x
		w[i] -= rate.LR * (m[i] / bc1) / (math.Sqrt(v[i]/bc2) + a.Eps)
	}
}

// TestUpdateHasTheSameBitsEverywhere: updates with every instruction set and any number of threads
// give the bits of plain Go on one thread.
func TestUpdateHasTheSameBitsEverywhere(t *testing.T) {
	testkit.NotShort(t)
	for _, bf16 := range []bool{false, true} {
		for _, gradBF16 := range []bool{false, true} {
			want := updated(t, "generic", 1, bf16, gradBF16)
			for _, k := range optim.Levels() {
				for _, threads := range []int{1, 2, 5} {
					t.Run(fmt.Sprintf("split %t grad bf16 %t %s %d threads", bf16, gradBF16, k, threads), func(t *testing.T) {
						sameBits(t, want, updated(t, k, threads, bf16, gradBF16))
					})
				}
			}
		}
	}
}

// updated returns a store after updates of all kinds with the kernels of instruction set k. Its
// weights and gradients are numbers of any magnitude (wild).
func updated(t *testing.T, k string, threads int, bf16, gradBF16 bool) *Store {
	useLevel(t, k)
	s := newStore(t, layouts(bf16), poolOf(t, threads))
	fillStore(s, 3, wild)
	a, rate := recipe, rate
	for rate.Step = 1; rate.Step <= 2; rate.Step++ {
		seed := uint64(rate.Step)
		table := s.Layers[0].Layout.Tensors[0]
		ids := []int32{0, 1, 5, 17, 18, 19, 66}
		s.Layers[0].UpdateRows(ids, gradOf(int64(len(ids)*table.Cols), gradBF16, seed, wild), a, rate)
		s.Layers[0].UpdateTensor(0, gradOf(table.Elems(), gradBF16, seed+10, wild), a, rate)
		s.Layers[1].Update(gradOf(s.Layers[1].Layout.Elems, gradBF16, seed+20, wild), a, rate)
		s.Layers[2].Update(gradOf(s.Layers[2].Layout.GradElems, gradBF16, seed+30, wild), a, rate)
	}
	return s
}

func TestUpdateRowsIsUpdateWithZeros(t *testing.T) {
	testkit.NotShort(t)
	const rows, cols = 5000, 19
	for _, bf16 := range []bool{false, true} {
		for _, gradBF16 := range []bool{false, true} {
			for _, k := range optim.Levels() {
				useLevel(t, k)
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
				sparse.Layers[0].UpdateRows(ids, gradFrom(few, gradBF16), recipe, rate)
				dense.Layers[0].Update(gradFrom(full, gradBF16), recipe, rate)
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
	sparse.Layers[0].UpdateRows(nil, optim.Grad{}, recipe, rate)
	dense.Layers[0].Update(gradFrom(make([]float32, l[0].Elems), true), recipe, rate)
	sameBits(t, dense, sparse)
	if floats(sparse.Layers[0], "m")[0] == 0 {
		t.Error("the table did not move")
	}
}

// TestUpdatesChange: every kind of update marks the layer as changed, so that Settle writes it to
// disk.
func TestUpdatesChange(t *testing.T) {
	l := layouts(true)[:1]
	for name, update := range map[string]func(l *LayerState){
		"all":      func(s *LayerState) { s.Update(gradFrom(make([]float32, l[0].Elems), true), recipe, rate) },
		"rows":     func(s *LayerState) { s.UpdateRows(nil, optim.Grad{}, recipe, rate) },
		"a matrix": func(s *LayerState) { s.pieces(optim.Matrix{Rows: 1, Cols: 1}, func(int64, int64) {}) },
	} {
		s := newStore(t, l, nil).Layers[0]
		if s.changed {
			t.Errorf("%s: changed before", name)
		}
		if update(s); !s.changed {
			t.Errorf("%s: not changed", name)
		}
	}
}

// TestUpdateKeepsNonFinite: a gradient that is NaN or infinite makes weights and moments
// non-finite. No kernel may turn it into a finite number.
func TestUpdateKeepsNonFinite(t *testing.T) {
	for _, k := range optim.Levels() {
		useLevel(t, k)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			s := newStore(t, layouts(false), nil)
			g := gradFrom(make([]float32, s.Layers[1].Layout.Elems), false)
			tl := s.Layers[1].Layout.Tensors[1]
			optim.View[float32](g.Data)[tl.Elem+7] = bad
			s.Layers[1].Update(g, recipe, rate)
			w, m := s.Layers[1].F32Plane(1)[7], floats(s.Layers[1], "m")[tl.Elem+7]
			if w == w || !(m != m || math.IsInf(float64(m), 0)) {
				t.Errorf("%s: gradient %v gives w %v, m %v", k, bad, w, m)
			}
			if x := s.Layers[1].F32Plane(1)[6]; x != 0 {
				t.Errorf("%s: its neighbour is %v", k, x)
			}
		}
	}
}

// TestMomentEndsAtZero: a moment that gets no more gradients becomes zero, and does not stay a
// subnormal number, which would make updates slow.
func TestMomentEndsAtZero(t *testing.T) {
	for _, k := range optim.Levels() {
		useLevel(t, k)
		s := newStore(t, layouts(true)[:1], nil)
		l := s.Layers[0]
		moment := floats(l, "m")
		for i := range moment {
			moment[i] = 1
		}
		a, rate := recipe, rate
		for rate.Step = 1; rate.Step < 1000; rate.Step++ {
			s.Layers[0].UpdateRows(nil, optim.Grad{}, a, rate)
		}
		for i, m := range moment[:l.Layout.Tensors[0].Elems()] {
			if m != 0 {
				t.Fatalf("%s: m[%d] = %v after %d steps", k, i, m, rate.Step)
			}
		}
	}
}

func TestUpdateLeavesPaddingAndNeighbours(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		s := newStore(t, layouts(bf16), nil)
		g := gradOf(s.Layers[1].Layout.Elems, false, 1, mean)
		s.Layers[1].Update(g, recipe, rate)
		l := s.Layers[1].Layout
		for i, tl := range l.Tensors {
			end := l.Elems
			if i+1 < len(l.Tensors) {
				end = l.Tensors[i+1].Elem
			}
			for e := tl.Elem + tl.Elems(); e < end; e++ {
				if floats(s.Layers[1], "m")[e] != 0 || floats(s.Layers[1], "v")[e] != 0 {
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
	zero := rate
	zero.Step = 0
	table := s.Layers[0].Layout.Elems
	full := gradFrom(make([]float32, table), false)
	shifted := optim.Grad{Data: make([]byte, 4*table+4)[2:], Elems: table}
	tests := map[string]func(){
		"step 0":                 func() { s.Layers[0].Update(full, recipe, zero) },
		"short gradient":         func() { s.Layers[1].Update(full, recipe, rate) },
		"elements without bytes": func() { s.Layers[0].Update(optim.Grad{Data: full.Data[4:], Elems: table}, recipe, rate) },
		"shifted gradient":       func() { s.Layers[0].Update(shifted, recipe, rate) },
		"a reference":            func() { s.Layers[2].UpdateTensor(1, full, recipe, rate) },
		"another tensor's":       func() { s.Layers[2].UpdateTensor(0, full, recipe, rate) },
		"ids that fall":          func() { s.Layers[0].UpdateRows([]int32{2, 1}, full, recipe, rate) },
		"an id twice":            func() { s.Layers[0].UpdateRows([]int32{2, 2}, full, recipe, rate) },
		"an id too large":        func() { s.Layers[0].UpdateRows([]int32{67}, full, recipe, rate) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) { mustPanic(t, f) })
	}
}

func bigEmbedding(rows, cols int, bf16 bool) model.Layout {
	return model.NewLayout(embedding(rows, cols), bf16, model.Param{})
}

// TestTiedTableMovesByTheSum: a table that embedding and head share is updated as by one dense
// gradient, the sum of the head's and the embedding's.
func TestTiedTableMovesByTheSum(t *testing.T) {
	for _, dstBF16 := range []bool{false, true} {
		for _, rowsBF16 := range []bool{false, true} {
			t.Run(fmt.Sprintf("slab bf16 %t, rows bf16 %t", dstBF16, rowsBF16), func(t *testing.T) {
				l := layouts(true)
				tied, dense := newStore(t, l, poolOf(t, 2)), newStore(t, l, nil)
				fillStore(tied, 11, mean)
				fillStore(dense, 11, mean)
				ref := l[2].Tensors[1]
				slab := gradOf(l[2].GradElems, dstBF16, 1, mean)
				ids := []int32{0, 3, 4, 40, 66}
				rows := gradOf(int64(len(ids)*ref.Cols), rowsBF16, 2, mean)

				part := slab.Part(ref.Elem, ref.Elems())
				sum := values(part)
				for i, x := range values(rows) {
					sum[int(ids[i/ref.Cols])*ref.Cols+i%ref.Cols] += x
				}
				before := values(slab)[:ref.Elem]
				optim.AddRows(poolOf(t, 3), part, ids, rows, ref.Cols)
				want := gradFrom(sum, dstBF16)
				sameFloats(t, "sum", values(want), values(part))
				sameFloats(t, "norm's gradient", before, values(slab)[:ref.Elem])

				tied.Layers[0].UpdateTensor(0, part, recipe, rate)
				tied.Layers[2].Update(slab, recipe, rate)
				dense.Layers[0].Update(optim.Grad{Data: padded(want, l[0].Elems), BF16: dstBF16, Elems: l[0].Elems}, recipe, rate)
				dense.Layers[2].Update(slab, recipe, rate)
				sameBits(t, dense, tied)
			})
		}
	}
}

// padded returns the bytes of g, followed by zeros up to the size of elems fp32 elements.
func padded(g optim.Grad, elems int64) []byte {
	b := bytesOf(make([]float32, elems))
	copy(b, g.Data)
	return b
}

// TestWeightsAloneCannotBeUpdated: a store that is made without planes, for evaluation, allocates
// none, and an update panics.
func TestWeightsAloneCannotBeUpdated(t *testing.T) {
	s := testkit.Must(NewStore(layouts(true), nil, nil))(t)
	defer s.Close()
	if n := StoreBytes(layouts(true), nil)[accounts.Planes]; n != 0 || s.Layers[1].Planes != nil || s.Layers[1].Plane("m") != nil {
		t.Errorf("planes of %d bytes: %v", n, s.Layers[1].Planes)
	}
	mustPanic(t, func() { s.Layers[1].Update(gradOf(s.Layers[1].Layout.Elems, false, 1, mean), recipe, rate) })
}

// TestPlanesAreTheLayersOwn: each layer has exactly the planes that the optimizer's function gives
// for its parameters, and an update changes no other plane.
func TestPlanesAreTheLayersOwn(t *testing.T) {
	average := optim.Plane{Name: "average", DType: optim.F32, Kind: "averages", Of: "nobody"}
	planes := func(p optim.Piece) []optim.Plane {
		switch p.Param.Role {
		case model.RoleEmbed:
			return nil // such parameters are not trained
		case model.RoleDown:
			return append([]optim.Plane{average}, recipe.Planes(p)...)
		}
		return recipe.Planes(p)
	}
	s := testkit.Must(NewStore(layouts(true), planes, nil))(t)
	defer s.Close()
	want := newStore(t, layouts(true), nil)
	for i, names := range [][]string{nil, {"m", "v", "average"}, {"m", "v"}} {
		var got []string
		for _, p := range s.Layers[i].Planes {
			got = append(got, p.Name)
			want := 4 * s.Layers[i].Layout.Elems
			if p.Name == "average" {
				down := s.Layers[i].Layout.Tensor(model.RoleDown)
				want = (4*down.Elems() + 511) / 512 * 512
			}
			if int64(len(p.Data)) != want {
				t.Errorf("layer %d: %s of %d bytes", i, p.Name, len(p.Data))
			}
		}
		if !slices.Equal(got, names) {
			t.Errorf("layer %d: planes %v, want %v", i, got, names)
		}
	}
	l := s.Layers[1]
	fill := floats(l, "average")
	for i := range fill {
		fill[i] = 7
	}
	g := gradOf(l.Layout.Elems, false, 1, mean)
	l.Update(g, recipe, rate)
	want.Layers[1].Update(g, recipe, rate)
	for _, name := range []string{"m", "v"} {
		sameFloats(t, name, floats(want.Layers[1], name), floats(l, name))
	}
	for i, x := range fill {
		if x != 7 {
			t.Fatalf("the average moved: element %d is %v", i, x)
		}
	}
}

// TestUnitsAreAsTheirOptimizerCuts: a layer is divided into units once for each optimizer, and
// again when another optimizer updates it.
func TestUnitsAreAsTheirOptimizerCuts(t *testing.T) {
	s := newStore(t, layouts(true), nil)
	l := s.Layers[1]
	g := gradOf(l.Layout.Elems, false, 1, mean)
	l.Update(g, recipe, rate)
	o := &counting{AdamW: recipe}
	l.Update(g, o, rate)
	l.Update(g, o, rate)
	if o.cuts != 1 {
		t.Errorf("the second of two optimizers cut the layer %d times", o.cuts)
	}
}

// counting is an AdamW that counts how often a layer is divided into units.
type counting struct {
	optim.AdamW
	cuts int
}

func (c *counting) Units(l model.Layout) []optim.Unit {
	c.cuts++
	return c.AdamW.Units(l)
}
