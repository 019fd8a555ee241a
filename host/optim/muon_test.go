package optim

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"mt/base/bf16"
	"mt/internal/testkit"
	"mt/model"
)

//go:embed testdata/muon.json
var muonRecording []byte

// recordedMuon has what torch.optim.Muon computed, recorded by testdata/muon.py.
type recordedMuon struct {
	Torch string // version of PyTorch
	Cases []struct {
		Rows, Cols int
		Options    struct {
			LR          float64 `json:"lr"`
			WeightDecay float64 `json:"weight_decay"`
			Momentum    float64
			Nesterov    bool
			Adjust      Adjust `json:"adjust_lr_fn"`
			NSSteps     int    `json:"ns_steps"`
		}
		First, Grads, U, O, Last, Momentum text
	}
}

// text is a base64 string of little-endian numbers.
type text string

func (x text) bytes(t *testing.T) []byte {
	t.Helper()
	b := testkit.Must(base64.StdEncoding.DecodeString(string(x)))(t)
	return b
}

// floats decodes x as fp32 numbers.
func (x text) floats(t *testing.T) []float32 { return View[float32](x.bytes(t)) }

// TestMuonIsTorchs compares both halves of an update with torch.optim.Muon over 50 steps: the
// matrix u to orthogonalize, and the weights that follow from torch's own orthogonalized matrix.
// The gradients are halved first and doubled by Clip.
//
// torch may fuse a product with a sum where mt rounds twice, and vice versa. So weights differ by
// at most two roundings (2⁻²⁴) of the largest weight in each of 50 steps. The momentum has the same
// bound, and forgets old roundings. u is rounded to bf16: next to a rounding boundary the small
// difference becomes a whole unit in the last place, which is rare.
func TestMuonIsTorchs(t *testing.T) {
	var rec recordedMuon
	testkit.NoError(t, json.Unmarshal(muonRecording, &rec))
	const bound = 100. / (1 << 24)
	for i, c := range rec.Cases {
		var off float64
		halves := 0
		for _, rounded := range []bool{false, true} {
			p := model.Param{Role: model.RoleO, Rows: c.Rows, Cols: c.Cols, Dims: 2, Stored: []model.Stored{{Rows: c.Rows}}}
			layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, rounded, model.Param{})
			steps := c.Options.NSSteps
			if steps == 0 {
				steps = 5
			}
			o := Muon{Momentum: c.Options.Momentum, Nesterov: c.Options.Nesterov, NSSteps: steps, Adjust: c.Options.Adjust,
				WeightDecay: c.Options.WeightDecay, Scale: 2, OthersScale: 1}
			first, grads, us, o16 := c.First.floats(t), c.Grads.floats(t), View[uint16](c.U.bytes(t)), c.O.bytes(t)
			n := len(first)
			w := Weight{Layout: &layout, Tile: make([]byte, layout.TileBytes+8), Lo: make([]uint16, layout.Elems)}
			weights := func(f func(i int, bits uint32) uint32) {
				for i := range n {
					if rounded {
						hi := (*uint16)(unsafe.Pointer(&w.Tile[2*i]))
						*hi, w.Lo[i] = Split(f(i, Join(*hi, w.Lo[i])))
					} else {
						at := (*uint32)(unsafe.Pointer(&w.Tile[4*i]))
						*at = f(i, *at)
					}
				}
			}
			weights(func(i int, _ uint32) uint32 { return math.Float32bits(first[i]) })
			planes := statesOf(o.Planes, layout)
			matrices := Matrices(layout)
			if len(matrices) != 1 {
				t.Fatalf("%d matrices", len(matrices))
			}
			halves = 0
			elsewhere := make([]byte, 2*n)
			for s := range 50 {
				g := make([]float32, n)
				for i := range g {
					g[i] = grads[s*n+i] / 2
				}
				by := o.MatricesAt(Rate{LR: c.Options.LR / 2, Step: int64(s + 1), Clip: 2})
				to := Grad{Data: elsewhere, BF16: true, Elems: int64(n)}
				for at := int64(0); at < int64(n); at += 7 { // in pieces
					k := min(7, int64(n)-at)
					by.Prepare(matrices[0], at, k, w, planes, Grad{Data: bytesOf(g), Elems: int64(n)}.Part(at, k), to.Part(at, k))
				}
				for i, u := range View[uint16](elsewhere) {
					want := us[s*n+i]
					if u != want {
						halves++
					}
					if d := int(u) - int(want); d < -1 || d > 1 {
						t.Fatalf("case %d, step %d: u[%d] is %v, want %v", i, s+1, i, bf16.Widen(u), bf16.Widen(want))
					}
				}
				by.Apply(matrices[0], 0, int64(n), w, Grad{Data: o16[2*s*n : 2*(s+1)*n], BF16: true, Elems: int64(n)})
			}
			if halves > 50*n/100 {
				t.Errorf("case %d: %d of %d elements of u are not torch's", i, halves, 50*n)
			}
			near(t, "momentum", find(planes, "momentum", F32).Floats(0, 0, int64(n)), c.Momentum.floats(t), bound)
			got := make([]float32, n)
			weights(func(i int, bits uint32) uint32 { got[i] = math.Float32frombits(bits); return bits })
			off = max(off, near(t, "weights", got, c.Last.floats(t), bound))
		}
		t.Logf("parity| `muon`, `%s`, %d × %d | torch %s `Muon` | %.1e of the largest; %d of %d of u rounded to the other side | %.1e; 1 %% |",
			c.Options.Adjust, c.Rows, c.Cols, rec.Torch, off, halves, 50*c.Rows*c.Cols, bound)
	}
}

// TestMatricesOfALayer: the stacked q, k and v are one matrix each, and the router is none. Every
// element of the layer is in exactly one matrix or unit.
func TestMatricesOfALayer(t *testing.T) {
	layout := model.NewLayout(model.Layer{Kind: model.MoE, Params: []model.Param{
		{Role: model.RoleMLPNorm, Rows: 6, Cols: 1, Dims: 1},
		{Role: model.RoleRouter, Rows: 3, Cols: 6, Dims: 2, F32: true},
		{Role: model.RoleQKV, Rows: 9, Cols: 6, Dims: 2, Stored: []model.Stored{{Rows: 4}, {Row: 4, Rows: 2}, {Row: 6, Rows: 3}}},
		{Role: model.RoleLMHead, Rows: 5, Cols: 6, Dims: 2},
		{Role: model.RoleDown, Rows: 6, Cols: 40, Dims: 2},
	}}, true, model.Param{})
	m := Muon{Others: AdamW{}}
	seen := map[[2]int64]int{}
	for _, x := range Matrices(layout) {
		for i := range x.Elems() {
			seen[[2]int64{int64(x.Tensor), x.At + i}]++
		}
	}
	if want := []Matrix{{2, 0, 4, 6}, {2, 24, 2, 6}, {2, 36, 3, 6}, {4, 0, 6, 40}}; !slices.Equal(Matrices(layout), want) {
		t.Errorf("matrices %v, want %v", Matrices(layout), want)
	}
	for _, u := range m.Units(layout) {
		for i := range u.N {
			seen[[2]int64{int64(u.Tensor), u.At + i}]++
		}
	}
	for x, tl := range layout.Tensors {
		for i := range tl.Elems() {
			if n := seen[[2]int64{int64(x), i}]; n != 1 {
				t.Fatalf("element %d of %s is updated %d times", i, tl.Role, n)
			}
		}
		if planes := m.Planes(Pieces(tl.Param)[0]); OfMatrices(tl.Param) != slices.Equal(planes, []Plane{momentum.Plane}) {
			t.Errorf("%s keeps %v", tl.Role, planes)
		}
	}
}

// TestMuonsOthers: parameters that are no matrices are updated by AdamW, with the run's learning
// rate times OthersScale.
func TestMuonsOthers(t *testing.T) {
	m := Muon{Others: AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}, OthersScale: 0.25}
	coefs := func(u Update) arithmetic { return *u.(elementUpdate).by }
	got, want := coefs(m.At(Rate{LR: 0.5, Step: 3, Clip: 0.5})), coefs(m.Others.At(Rate{LR: 0.125, Step: 3, Clip: 0.5}))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("coefficients %v, want %v", got, want)
	}
}

// TestMuonsGroups: a matrix in a group moves with the group's learning rate and weight decay. Its neighbours in the
// same parameter do not.
func TestMuonsGroups(t *testing.T) {
	p := model.Param{Role: model.RoleQKV, Rows: 9, Cols: 6, Dims: 2, Stored: []model.Stored{{Rows: 4}, {Row: 4, Rows: 2, Group: 1}, {Row: 6, Rows: 3}}}
	layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, false, model.Param{})
	moved := func(o Muon) []float32 {
		w := Weight{Layout: &layout, Tile: bytesOf(gradOf(layout.TileBytes/4, false, 1, mean).values())}
		for _, x := range Matrices(layout) {
			o.MatricesAt(Rate{LR: 0.1, Step: 1, Clip: 1}).Apply(x, 0, x.Elems(), w, gradOf(x.Elems(), false, uint64(x.At), mean))
		}
		return View[float32](w.Tile)
	}
	plain := Muon{Scale: 2, WeightDecay: 0.1}
	got, rest, group := plain, moved(plain), moved(Muon{Scale: 0.5, WeightDecay: 0.3})
	got.Groups = &Groups{{Scale: 0.5, WeightDecay: 0.3}}
	for i, x := range moved(got) {
		want := rest
		if i >= 4*6 && i < 6*6 {
			want = group
		}
		if x != want[i] {
			t.Fatalf("element %d is %v, want %v", i, x, want[i])
		}
	}
}

// TestMuonForgets: momentum that gets no more gradients becomes 0, and does not stay a subnormal
// number.
func TestMuonForgets(t *testing.T) {
	p := model.Param{Role: model.RoleO, Rows: 1, Cols: 1, Dims: 2}
	layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, false, model.Param{})
	planes := statesOf(Muon{}.Planes, layout)
	m := find(planes, "momentum", F32).Floats(0, 0, 1)
	m[0] = 1e-30
	by, zero, to := Muon{Momentum: 0.5}.MatricesAt(Rate{Clip: 1}), gradFrom([]float32{0}, false), gradFrom([]float32{0}, false)
	for range 30 {
		by.Prepare(Matrices(layout)[0], 0, 1, Weight{Layout: &layout}, planes, zero, to)
		if m[0] != 0 && m[0] < 0x1p-126 {
			t.Fatalf("the momentum is %v", m[0])
		}
	}
	if m[0] != 0 {
		t.Errorf("the momentum is %v after all", m[0])
	}
}

// near fails the test unless got equals want within bound times want's largest element.
func near(t *testing.T, what string, got, want []float32, bound float64) (off float64) {
	t.Helper()
	var largest, worst float64
	for i, w := range want {
		largest, worst = max(largest, math.Abs(float64(w))), max(worst, math.Abs(float64(got[i])-float64(w)))
	}
	if !(worst <= bound*largest) {
		t.Errorf("%s: the error is %.3g of the largest element, allowed %.3g", what, worst/largest, bound)
	}
	return worst / largest
}

// statesOf returns the planes of a layer, filled with zeros.
func statesOf(f Planes, l model.Layout) (out []State) {
	for _, p := range f.Of(l) {
		out = append(out, NewState(p, l, Whole(l), func(bytes int64) []byte { return bytesOf(make([]float32, bytes/4)) }))
	}
	return out
}

// BenchmarkMatrix measures both halves of Muon's update of a matrix on one core, in bytes read and
// written a second.
func BenchmarkMatrix(b *testing.B) {
	const rows, cols = 256, 4096
	p := model.Param{Role: model.RoleO, Rows: rows, Cols: cols, Dims: 2}
	layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, true, model.Param{})
	o := Muon{Momentum: 0.95, Nesterov: true, Adjust: Original, Scale: 1}
	planes, x := statesOf(o.Planes, layout), Matrices(layout)[0]
	w := Weight{Layout: &layout, Tile: bytesOf(make([]float32, layout.TileBytes/4)), Lo: make([]uint16, layout.Elems)}
	g, u := gradFrom(make([]float32, rows*cols), false), gradFrom(make([]float32, rows*cols), true)
	by := o.MatricesAt(Rate{LR: 1e-3, Step: 1, Clip: 0.5})
	b.Run("prepare", func(b *testing.B) {
		b.SetBytes(14 * rows * cols)
		for b.Loop() {
			by.Prepare(x, 0, x.Elems(), w, planes, g, u)
		}
	})
	b.Run("apply", func(b *testing.B) {
		b.SetBytes(10 * rows * cols)
		for b.Loop() {
			by.Apply(x, 0, x.Elems(), w, u)
		}
	})
}

// TestMuonWithCodes: if the momentum is stored in 8-bit codes, an update decodes them, updates the
// numbers in fp32, and encodes them as torchao does. This holds for every instruction set, and for
// parts that consist of whole blocks.
func TestMuonWithCodes(t *testing.T) {
	const rows, cols = 72, 64 // 18 blocks
	p := model.Param{Role: model.RoleO, Rows: rows, Cols: cols, Dims: 2, Stored: []model.Stored{{Rows: rows}}}
	layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, false, model.Param{})
	o := Muon{Momentum: 0.95, Nesterov: true, Bits: 8, Others: AdamW{}}
	plain, book := o, schemes[8].book(true)
	plain.Bits = 0
	for _, k := range available() {
		useKernels(t, k)
		coded, fp32 := statesOf(o.Planes, layout), statesOf(plain.Planes, layout)
		x, w := Matrices(layout)[0], Weight{Layout: &layout}
		m := find(fp32, "momentum", F32).Floats(0, 0, x.Elems())
		for step := range 5 {
			g := gradOf(x.Elems(), step%2 == 1, uint64(step), mean)
			got, want := gradFrom(make([]float32, x.Elems()), true), gradFrom(make([]float32, x.Elems()), true)
			for at := int64(0); at < x.Elems(); at += 2560 {
				n := min(2560, x.Elems()-at)
				o.MatricesAt(Rate{LR: 0.1, Clip: 0.5}).Prepare(x, at, n, w, coded, g.Part(at, n), got.Part(at, n))
			}
			plain.MatricesAt(Rate{LR: 0.1, Clip: 0.5}).Prepare(x, 0, x.Elems(), w, fp32, g, want)
			if !slices.Equal(got.values(), want.values()) {
				t.Fatalf("%s, step %d: what is handed over is not that of the numbers", k.name, step)
			}
			codes, scales := o.codes().stateOf(momentum, coded, &layout, Unit{0, 0, x.Elems()})
			for i := range m {
				if i%256 == 0 {
					scale := float32(0)
					for _, v := range m[i : i+256] {
						scale = max(scale, float32(math.Abs(float64(v))))
					}
					if scales[i/256] != scale {
						t.Fatalf("%s, step %d: block %d has the scale %v, want %v", k.name, step, i/256, scales[i/256], scale)
					}
				}
				if c := torchCode(book.values[:], m[i]/scales[i/256]); codes[i] != c {
					t.Fatalf("%s, step %d: element %d has the code %d, want %d", k.name, step, i, codes[i], c)
				}
				m[i] = book.values[codes[i]] * scales[i/256]
			}
		}
	}
	t.Log("parity| `muon_8bit`, its momentum | `muon`'s arithmetic, codes by torchao's search | none | none |")
}
