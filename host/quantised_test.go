package host

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// small has optimizers that keep less state than AdamW with fp32 moments.
var small = map[string]optim.Optimizer{
	"adamw 8-bit": optim.Quantised{By: recipe, Bits: 8},
	"adamw 4-bit": optim.Quantised{By: recipe, Bits: 4},
	"lion":        optim.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1},
	"lion 8-bit":  optim.Quantised{By: optim.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1}, Bits: 8},
	"sgd":         optim.SGD{WeightDecay: 0.1},
	"momentum":    optim.SGD{Momentum: 0.9, WeightDecay: 0.1},
	"nesterov":    optim.SGD{Momentum: 0.9, WeightDecay: 0.1, Nesterov: true},
}

// mixed returns two layers: an embedding whose rows are cut by the blocks that share a scale, and a
// layer with a vector and a parameter that consists of three tensors (pieces). The second piece is
// too small for quantised moments.
func mixed(hidden int, bf16 bool) []model.Layout {
	embed := model.Param{Role: model.RoleEmbed, Rows: 160, Cols: hidden, Dims: 2}
	name := func(row, rows int) model.Stored { return model.Stored{Name: "t", Row: row, Rows: rows} }
	qkv := model.Param{Role: model.RoleQKV, Rows: 75, Cols: hidden, Dims: 2, Stored: []model.Stored{name(0, 64), name(64, 3), name(67, 8)}}
	var out []model.Layout
	for i, l := range []model.Layer{
		{Kind: model.Embedding, Params: []model.Param{embed}},
		{Kind: model.Block, Params: []model.Param{{Role: model.RoleAttnNorm, Rows: 1, Cols: hidden, Dims: 1}, qkv}},
	} {
		l.Index = i
		out = append(out, model.NewLayout(l, bf16, embed))
	}
	return out
}

// moved returns a store after two updates by optimizer o. It has one rank's shares; nil: whole
// layers. The updates change the embedding's table by the gradient of some rows (dense: of all
// rows, with zeros for the others), and the other layer as a whole.
func moved(t *testing.T, o optim.Optimizer, l []model.Layout, shares []optim.Share, threads int, dense bool) *Store {
	t.Helper()
	s := testkit.Must(NewShareStore(l, o.Planes, shares, poolOf(t, threads)))(t)
	t.Cleanup(func() { _ = s.Close() })
	s.SetRoundingSeed(7)
	for i, layer := range s.Layers {
		for n, tl := range layer.Layout.Tensors {
			layer.WriteRows(n, 0, tl.Rows, values(gradOf(tl.Elems(), false, uint64(10*i+n), mean)))
		}
	}
	bf16 := l[0].Tensors[0].BF16
	for step := int64(1); step <= 2; step++ {
		r := optim.Rate{LR: 0.01, Step: step, Clip: 0.5}
		ids, cols := []int32{0, 3, 4, 56, 57, 58, 59, 155, 156}, l[0].Tensors[0].Cols
		rows := values(gradOf(int64(len(ids)*cols), bf16, uint64(step), mean))
		if dense {
			full := make([]float32, l[0].Elems)
			for k, id := range ids {
				copy(full[int(id)*cols:][:cols], rows[k*cols:])
			}
			s.Layers[0].Update(gradFrom(full, bf16), o, r)
		} else {
			s.Layers[0].UpdateRows(ids, gradFrom(rows, bf16), o, r)
		}
		own := s.Layers[1].Share
		s.Layers[1].Update(gradOf(l[1].Elems, !bf16, uint64(20+step), mean).Part(own.From, own.Elems()), o, r)
	}
	return s
}

// TestSmallStatesHaveTheSameBitsEverywhere: with optimizers of small state, such as 8-bit AdamW,
// the results do not depend on threads, ranks, instruction set, or on whether the table's gradient
// is sparse or dense. It covers weights with lower halves, weights without, and fp32 weights.
func TestSmallStatesHaveTheSameBitsEverywhere(t *testing.T) {
	for at, name := range slices.Sorted(maps.Keys(small)) {
		o := small[name]
		for i, hidden := range []int{576, 896, 576} {
			t.Run(fmt.Sprintf("%s, hidden %d, %d", name, hidden, i), func(t *testing.T) {
				if at > 0 {
					testkit.NotShort(t)
				}
				if i != at%3 {
					testkit.LongOnly(t)
				}
				l := mixed(hidden, i != 1)
				for k := range l {
					l[k].BF16Master = i == 2
				}
				useLevel(t, "generic")
				want := moved(t, o, l, nil, 1, false)
				for _, k := range optim.Levels() {
					useLevel(t, k)
					for _, got := range []*Store{moved(t, o, l, nil, 3, false), moved(t, o, l, nil, 2, true)} {
						for i, layer := range got.Layers {
							samePart(t, want.Layers[i], layer)
						}
					}
				}
				shares := make([][]optim.Share, 2+i%2)
				for _, layout := range l {
					for r, s := range optim.Shares(layout, o.Units(layout), 2+i%2) {
						shares[r] = append(shares[r], s)
					}
				}
				for _, own := range shares {
					for i, layer := range moved(t, o, l, own, 2, false).Layers {
						samePart(t, want.Layers[i], layer)
					}
				}
			})
		}
	}
}

// TestSmallStatesMoveAll: an update changes every weight of a matrix that consists of several
// units, and all of its state.
func TestSmallStatesMoveAll(t *testing.T) {
	for name, o := range small {
		p := model.Param{Role: model.RoleDown, Rows: 272, Cols: 256, Dims: 2, Stored: []model.Stored{{Name: "t", Rows: 272}}} // 2.125 units
		l := []model.Layout{model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, false, model.Param{})}
		s := testkit.Must(NewStore(l, o.Planes, poolOf(t, 2)))(t)
		ones := make([]float32, l[0].Elems)
		for i := range ones {
			ones[i] = 1
		}
		s.Layers[0].WriteRows(0, 0, p.Rows, ones)
		s.Layers[0].Update(gradFrom(ones, false), o, optim.Rate{LR: 0.5, Step: 1, Clip: 1})
		got := make([]float32, len(ones))
		s.Layers[0].ReadRows(0, 0, p.Rows, got)
		for i, w := range got {
			if w != got[0] || w > 0.9 {
				t.Errorf("%s: weight %d of %d is %v, the first is %v", name, i, len(got), w, got[0])
				break
			}
		}
		for _, plane := range s.Layers[0].Planes {
			data := plane.Data[:plane.DType.Bytes(int64(len(ones))/max(1, plane.Block))]
			if !bytes.Equal(data[4:], data[:len(data)-4]) { // four bytes are a value, or several codes
				t.Errorf("%s: %s differs among its elements", name, plane.Name)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// samePart compares a rank's share of a layer (part) with the same elements of the whole layer.
func samePart(t *testing.T, whole, part *LayerState) {
	t.Helper()
	own, l := part.Share, whole.Layout
	from, to := own.Tile(l)
	if !bytes.Equal(whole.Tile[from:to], part.Tile[from:to]) {
		t.Fatalf("layer %d: bytes %d to %d of the tile differ", l.Index, from, to)
	}
	for i, lo := range part.Lo {
		if lo != whole.Lo[own.From+int64(i)] {
			t.Fatalf("layer %d: lower half %d differs", l.Index, i)
		}
	}
	for _, p := range part.Planes {
		from, to := p.Range(l, own)
		if !bytes.Equal(p.Data, whole.Plane(p.Name)[p.DType.Bytes(from):p.DType.Bytes(to)]) {
			t.Fatalf("layer %d: %s differs", l.Index, p.Name)
		}
	}
}

// TestBytesOfSmallStates: each optimizer's planes have the expected number of bytes for each weight
// of a matrix, scales included. The 4 bytes of the weight itself are not counted.
func TestBytesOfSmallStates(t *testing.T) {
	l := mixed(896, true)[0]
	for name, want := range map[string]float64{"adamw 8-bit": 2 + 8./256, "adamw 4-bit": 1 + 8./128, "lion": 4, "lion 8-bit": 1 + 4./256, "sgd": 0, "momentum": 4} {
		// Scales are padded to 128 values.
		if got := float64(optim.Planes(small[name].Planes).Bytes(l)) / float64(l.Elems); got < want || got > want+0.01 {
			t.Errorf("%s: %.4f bytes an element, want %.4f", name, got, want)
		}
	}
}
