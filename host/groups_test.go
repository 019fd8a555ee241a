package host

import (
	"fmt"
	"maps"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// scaled is an optimizer whose learning rate is `by` times the run's.
type scaled struct {
	optim.Optimizer
	by float64
}

func (s scaled) At(r optim.Rate) optim.Update {
	r.LR *= s.by
	return s.Optimizer.At(r)
}

// TestGroupsMoveAtTheirRates: parameter groups have their own learning rate and weight decay. Each
// group is updated to the bits that an optimizer with this rate and decay would give, also if one
// parameter consists of tensors of three groups.
func TestGroupsMoveAtTheirRates(t *testing.T) {
	testkit.NotShort(t)
	kinds := map[string]func(by func(decay float64) optim.Elementwise) optim.Optimizer{
		"plain": func(by func(float64) optim.Elementwise) optim.Optimizer { return by(0.1) },
		"8-bit": func(by func(float64) optim.Elementwise) optim.Optimizer {
			return optim.Quantised{By: by(0.1), Bits: 8}
		},
	}
	for name, by := range map[string]func(decay float64) optim.Elementwise{
		"adamw": func(d float64) optim.Elementwise {
			return optim.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: d}
		},
		"lion":  func(d float64) optim.Elementwise { return optim.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: d} },
		"sgd":   func(d float64) optim.Elementwise { return optim.SGD{WeightDecay: d} },
		"sgd m": func(d float64) optim.Elementwise { return optim.SGD{Momentum: 0.9, WeightDecay: d} },
	} {
		for kind := range maps.Keys(kinds) {
			for form := range 3 {
				t.Run(fmt.Sprintf("%s, %s, %d", name, kind, form), func(t *testing.T) {
					l := mixed(576, form != 1)
					for k := range l {
						l[k].BF16Master = form == 2
					}
					qkv, embed := &l[1].Tensors[1].Param, &l[0].Tensors[0].Param
					embed.Stored = []model.Stored{{Name: "t", Rows: embed.Rows, Group: 2}}
					qkv.Stored[1].Group, qkv.Stored[2].Group = 2, 1
					groups := optim.Groups{{Scale: 0.5, WeightDecay: 0.1}, {Scale: 3, WeightDecay: 0.25}}
					got := moved(t, kinds[kind](func(d float64) optim.Elementwise { return optim.Grouped{By: by(d), Groups: &groups} }), l, nil, 2, false)
					for group, alone := range []optim.Optimizer{kinds[kind](by), scaled{kinds[kind](by), 0.5},
						scaled{kinds[kind](func(float64) optim.Elementwise { return by(0.25) }), 3}} {
						want := moved(t, alone, l, nil, 2, false)
						for i, layer := range got.Layers {
							sameGroup(t, group, want.Layers[i], layer)
						}
					}
				})
			}
		}
	}
}

// sameGroup compares the weights of the tensors in one parameter group.
func sameGroup(t *testing.T, group int, want, got *LayerState) {
	t.Helper()
	for n, tl := range got.Layout.Tensors {
		stored := tl.Stored
		if len(stored) == 0 {
			stored = []model.Stored{{Rows: tl.Rows}}
		}
		for _, s := range stored {
			if s.Group != group {
				continue
			}
			a, b := make([]float32, s.Rows*tl.Cols), make([]float32, s.Rows*tl.Cols)
			want.ReadRows(n, s.Row, s.Rows, a)
			got.ReadRows(n, s.Row, s.Rows, b)
			sameFloats(t, fmt.Sprintf("group %d, %s", group, tl.Role), a, b)
		}
	}
}
