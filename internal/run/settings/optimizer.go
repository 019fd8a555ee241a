package settings

import (
	"cmp"

	"mt/host/optim"
	"mt/internal/run/config"
)

// Optimizer returns the optimizer that the keys describe.
func Optimizer(c *config.Config) optim.Optimizer {
	lion := grouped(c, optim.Lion{Beta1: c.AdamBeta1, WeightDecay: c.WeightDecay, Beta2: c.AdamBeta2}, c.LearningRate)
	switch c.Optim {
	case "muon", "muon_8bit":
		return *Muon(c)
	case "adamw_8bit":
		return optim.Quantised{By: adamW(c, c.LearningRate), Bits: 8}
	case "adamw_4bit":
		return optim.Quantised{By: adamW(c, c.LearningRate), Bits: 4}
	case "lion":
		return lion
	case "lion_8bit":
		return optim.Quantised{By: lion, Bits: 8}
	case "sgd":
		return grouped(c, optim.SGD{Momentum: c.Momentum, Nesterov: c.Nesterov, WeightDecay: c.WeightDecay}, c.LearningRate)
	}
	return adamW(c, c.LearningRate)
}

// Elementwise returns the optimizer of the tensors that are updated element by element. With Muon that is the
// optimizer for tensors other than matrices, and otherwise the run's only one.
func Elementwise(c *config.Config) optim.Optimizer {
	if m := Muon(c); m != nil {
		return m.Others
	}
	return Optimizer(c)
}

// adamW returns AdamW with the keys' options. highest is its peak learning rate.
func adamW(c *config.Config, highest float64) optim.Elementwise {
	return grouped(c, optim.AdamW{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay}, highest)
}

// grouped returns the optimizer by, which uses the learning rates and weight decays of lr_groups if there are any.
// highest is the peak learning rate of by.
func grouped(c *config.Config, by optim.Elementwise, highest float64) optim.Elementwise {
	if groups := groups(c, highest); groups != nil {
		return optim.Grouped{By: by, Groups: groups}
	}
	return by
}

// groups returns lr_groups for an optimizer whose peak learning rate is highest. Scale of a group is its peak learning
// rate / highest. It returns nil without groups.
func groups(c *config.Config, highest float64) *optim.Groups {
	if len(c.LRGroups) == 0 {
		return nil
	}
	out := optim.Groups{}
	for _, g := range c.LRGroups {
		out = append(out, optim.Group{Scale: g.LR / highest, WeightDecay: c.Decay(g)})
	}
	return &out
}

// Muon returns the Muon optimizer; nil: the run does not use Muon.
func Muon(c *config.Config) *optim.Muon {
	adamW := adamW(c, cmp.Or(c.AdamLR, c.LearningRate))
	bits, others := 0, optim.Optimizer(adamW)
	switch c.Optim {
	case "muon":
	case "muon_8bit":
		bits, others = 8, optim.Quantised{By: adamW, Bits: 8}
	default:
		return nil
	}
	share := func(rate float64) float64 { // learning rates over the one that the schedule scales
		if rate == 0 {
			return 1
		}
		return rate / c.LearningRate
	}
	return &optim.Muon{Momentum: c.Momentum, Nesterov: c.Nesterov, NSSteps: c.NSSteps, Adjust: optim.Adjust(c.AdjustLR), WeightDecay: c.WeightDecay,
		Bits: bits, Scale: share(c.MuonLR), Others: others, OthersScale: share(c.AdamLR), Groups: groups(c, c.LearningRate)}
}

// NSSteps returns Muon's Newton-Schulz iterations per matrix; 0: no Muon.
func NSSteps(c *config.Config) int {
	if m := Muon(c); m != nil {
		return m.NSSteps
	}
	return 0
}

// Average returns the settings of the weights' moving average.
func Average(c *config.Config) optim.Average {
	return optim.Average{Decay: c.EMADecay, After: int64(c.EMAAfter)}
}
