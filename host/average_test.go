package host

import (
	"fmt"
	"math"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// averaged is an optimizer with one more plane, for an exponential moving average (EMA) of the
// weights.
type averaged struct {
	optim.Elementwise
	optim.Average
}

func (a averaged) Planes(p optim.Piece) []optim.Plane { return a.With(a.Elementwise.Planes)(p) }

// TestAverages: after each update every moving average of weights has the bits that torch.lerp
// gives, for dense and sparse updates, all ways to store weights, instruction sets and ranks. Up to
// and including update After + 1, the average equals the weight.
func TestAverages(t *testing.T) {
	for _, by := range []optim.Average{{Decay: 0.9}, {Decay: 0.25, After: 2}} {
		for form := range 3 {
			t.Run(fmt.Sprintf("%+v, %d", by, form), func(t *testing.T) {
				l := mixed(576, form != 1)
				for k := range l {
					l[k].BF16Master = form == 2
				}
				groups := optim.Groups{{Scale: 2}}
				l[1].Tensors[1].Stored[1].Group = 1
				o := averaged{optim.Grouped{By: recipe, Groups: &groups}, by}
				var last *Store
				for _, level := range optim.Levels() {
					useLevel(t, level)
					s := filledStore(t, o, l, nil)
					s.SetEMA(by)
					var want [][]float32
					for step := int64(1); step <= 5; step++ {
						updateAll(s, o, step)
						want = follow(want, allWeights(s), by, step)
						for i, layer := range s.Layers {
							sameFloats(t, fmt.Sprintf("step %d, %s: average of layer %d", step, level, i), want[i], allOf(layer, floats(layer, "ema")))
						}
					}
					last = s
				}
				for _, shares := range sharesOf(l, o, 3) {
					part := filledStore(t, o, l, shares)
					part.SetEMA(by)
					for step := int64(1); step <= 5; step++ {
						updateAll(part, o, step)
					}
					for i, layer := range part.Layers {
						samePart(t, last.Layers[i], layer)
					}
				}
			})
		}
	}
}

// TestNoAverages: with a decay of 0 (no ema_decay), layers have no plane for a moving average, and
// updates make none.
func TestNoAverages(t *testing.T) {
	l := mixed(64, true)
	s := filledStore(t, averaged{recipe, optim.Average{}}, l, nil)
	updateAll(s, recipe, 1)
	for _, layer := range s.Layers {
		if layer.Plane("ema") != nil || layer.weight().Means != nil {
			t.Error("an average is kept that nobody asked for")
		}
	}
}

// TestAveragesOfMatrices: a matrix that Muon updates as a whole has a moving average, as all other
// weights have.
func TestAveragesOfMatrices(t *testing.T) {
	by := optim.Average{Decay: 0.75}
	l := mixed(64, true)
	o := optim.Muon{Momentum: 0.9, Scale: 1, Others: recipe, OthersScale: 1}
	s := testkit.Must(NewStore(l, by.With(o.Planes), poolOf(t, 2)))(t)
	t.Cleanup(func() { _ = s.Close() })
	fillWeights(s)
	s.SetEMA(by)
	var want [][]float32
	for step := int64(1); step <= 3; step++ {
		r := optim.Rate{LR: 0.1, Step: step, Clip: 1}
		for i, layer := range s.Layers {
			layer.Update(gradOf(l[i].Elems, false, uint64(step), mean), o, r)
			for _, x := range optim.Matrices(l[i]) {
				layer.ApplyMatrix(x, gradOf(x.Elems(), true, uint64(step), mean), o.MatricesAt(r))
			}
		}
		want = follow(want, allWeights(s), by, step)
		for i, layer := range s.Layers {
			sameFloats(t, fmt.Sprintf("step %d: average of layer %d", step, i), want[i], allOf(layer, floats(layer, "ema")))
		}
	}
}

// TestAveragesOfCodes: with moments stored as 8-bit or 4-bit codes, the moving average still
// follows the weights. This holds in units that are updated in several strips, and in a piece whose
// moments stay fp32.
func TestAveragesOfCodes(t *testing.T) {
	by := optim.Average{Decay: 0.75}
	for bits, bf16 := range map[int]bool{8: true, 4: false} {
		l := mixed(256, bf16)
		o := optim.Quantised{By: recipe, Bits: bits}
		s := testkit.Must(NewStore(l, by.With(o.Planes), poolOf(t, 2)))(t)
		t.Cleanup(func() { _ = s.Close() })
		fillWeights(s)
		s.SetEMA(by)
		var want [][]float32
		for step := int64(1); step <= 3; step++ {
			for i, layer := range s.Layers {
				layer.Update(gradOf(l[i].Elems, false, uint64(step), mean), o, optim.Rate{LR: 0.1, Step: step, Clip: 1})
			}
			want = follow(want, allWeights(s), by, step)
			for i, layer := range s.Layers {
				sameFloats(t, fmt.Sprintf("%d bits, step %d: average of layer %d", bits, step, i), want[i], allOf(layer, floats(layer, "ema")))
			}
		}
	}
}

// updateAll updates all layers of s by random gradients. The first layer, an embedding, gets the
// gradient of only some rows.
func updateAll(s *Store, o optim.Elementwise, step int64) {
	r := optim.Rate{LR: 0.01, Step: step, Clip: 0.5}
	table, ids := s.Layers[0], []int32{0, 3, 4, 56, 155}
	rows := gradOf(int64(len(ids)*table.Layout.Tensors[0].Cols), false, uint64(step), mean)
	table.UpdateRows(ids, rows, o, r)
	own := s.Layers[1].Share
	s.Layers[1].Update(gradOf(s.Layers[1].Layout.Elems, true, uint64(20+step), mean).Part(own.From, own.Elems()), o, r)
}

// filledStore returns a store with random weights, for one rank's shares of the layers; nil: whole
// layers.
func filledStore(t *testing.T, o optim.Optimizer, l []model.Layout, shares []optim.Share) *Store {
	t.Helper()
	s := testkit.Must(NewShareStore(l, o.Planes, shares, poolOf(t, 2)))(t)
	t.Cleanup(func() { _ = s.Close() })
	s.SetRoundingSeed(7)
	fillWeights(s)
	return s
}

func fillWeights(s *Store) {
	for i, layer := range s.Layers {
		for n, tl := range layer.Layout.Tensors {
			layer.WriteRows(n, 0, tl.Rows, values(gradOf(tl.Elems(), false, uint64(10*i+n), mean)))
		}
	}
}

// sharesOf returns, by rank, the shares of all layers.
func sharesOf(l []model.Layout, o optim.Optimizer, ranks int) [][]optim.Share {
	out := make([][]optim.Share, ranks)
	for _, layout := range l {
		for r, s := range optim.Shares(layout, o.Units(layout), ranks) {
			out[r] = append(out[r], s)
		}
	}
	return out
}

// allWeights returns the weights of each layer, with its tensors one after the other.
func allWeights(s *Store) (out [][]float32) {
	for _, layer := range s.Layers {
		var of []float32
		for n, tl := range layer.Layout.Tensors {
			w := make([]float32, tl.Elems())
			layer.ReadRows(n, 0, tl.Rows, w)
			of = append(of, w...)
		}
		out = append(out, of)
	}
	return out
}

// allOf returns a plane's elements of all tensors, without the gaps that the layer's flat order of
// elements has between tensors.
func allOf(l *LayerState, plane []float32) (out []float32) {
	for _, tl := range l.Layout.Tensors {
		out = append(out, plane[tl.Elem:][:tl.Elems()]...)
	}
	return out
}

// follow returns the averages after one more update: each moved towards the new weight as
// torch.lerp does. Up to update by.After + 1 they equal the weights.
func follow(averages, weights [][]float32, by optim.Average, step int64) [][]float32 {
	if step <= by.After+1 {
		return weights
	}
	share := float32(1 - by.Decay)
	for i, of := range averages {
		for k, a := range of {
			w := weights[i][k]
			if share < 0.5 {
				a += float32(share * float32(w-a))
			} else {
				a = w - float32(float32(w-a)*float32(1-share))
			}
			if math.Abs(float64(a)) < 0x1p-126 {
				a = 0
			}
			of[k] = a
		}
	}
	return averages
}
