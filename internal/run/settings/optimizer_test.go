package settings

import (
	"math"
	"testing"

	"mt/host/optim"
	"mt/internal/run/config"
	"mt/internal/testkit"
)

// TestMuonsRates: muon_lr and adam_lr follow the schedule of learning_rate. Each of them defaults
// to learning_rate.
func TestMuonsRates(t *testing.T) {
	for keys, want := range map[string][2]float64{
		"":                               {1, 1},
		"muon_lr: 0.03\n":                {3, 1},
		"adam_lr: 0.005\n":               {1, 0.5},
		"muon_lr: 0.02\nadam_lr: 0.02\n": {2, 2},
	} {
		c := testkit.Must(config.Parse("t.yaml", []byte("model: tiny\ndataset: x\noptim: muon\nlearning_rate: 0.01\n"+keys), config.Args{}))(t)
		m := Muon(c)
		if math.Abs(m.Scale-want[0])+math.Abs(m.OthersScale-want[1]) > 1e-12 {
			t.Errorf("%q: matrices have %v times the schedule's rate, all else %v, want %v", keys, m.Scale, m.OthersScale, want)
		}
	}
}

// TestGroupsRates: a group's rate replaces learning_rate, muon_lr and adam_lr, and its decay replaces weight_decay.
func TestGroupsRates(t *testing.T) {
	groups := "lr_groups: [{name: a, modules: [x], lr: 0.1}, {name: b, modules: [y], lr: 0.02, weight_decay: 0}]\n"
	for keys, want := range map[string][2]float64{ // the scales of the first group, of matrices and of all else
		"optim: muon\n":                   {10, 10},
		"optim: muon_8bit\nmuon_lr: 1\n":  {10, 10},
		"optim: muon\nadam_lr: 0.001\n":   {10, 100},
		"":                                {0, 10},
		"optim: adamw_8bit\n":             {0, 10},
		"optim: adamw_4bit\nadam_lr: 1\n": {0, 10},
		"optim: lion\n":                   {0, 10},
		"optim: lion_8bit\n":              {0, 10},
		"optim: sgd\n":                    {0, 10},
	} {
		c := testkit.Must(config.Parse("t.yaml", []byte("model: tiny\ndataset: x\nlearning_rate: 0.01\nweight_decay: 0.3\n"+groups+keys), config.Args{}))(t)
		check := func(what string, got *optim.Groups, scale float64) {
			if g := *got; len(g) != 2 || math.Abs(g[0].Scale-scale) > 1e-9 || math.Abs(g[1].Scale-scale/5) > 1e-9 || g[0].WeightDecay != 0.3 || g[1].WeightDecay != 0 {
				t.Errorf("%q: %s have groups %v, want the scale %v", keys, what, g, scale)
			}
		}
		o := Optimizer(c)
		if m, ok := o.(optim.Muon); ok {
			check("matrices", m.Groups, want[0])
			o = m.Others
		}
		if q, ok := o.(optim.Quantised); ok {
			o = q.By
		}
		check("elements", o.(optim.Grouped).Groups, want[1])
	}
}

// TestMuonBits: muon_8bit keeps its momentum in 8 bits, and muon in fp32.
func TestMuonBits(t *testing.T) {
	for name, bits := range map[string]int{"muon": 0, "muon_8bit": 8} {
		if m := Muon(&config.Config{Optim: name, LearningRate: 1}); m == nil || m.Bits != bits {
			t.Errorf("%s keeps its momentum as %+v, want %d bits", name, m, bits)
		}
	}
}
