package train

import (
	"cmp"

	"github.com/dustin/go-humanize"

	"mt/device"
	"mt/device/cuda"
	"mt/host/optim"
)

// optimizer is how weights are updated.
func (j *job) optimizer() optim.Optimizer {
	return j.slow.Optimizer(j.optimizerOf())
}

func (j *job) optimizerOf() optim.Optimizer {
	c := j.c
	lion := j.grouped(optim.Lion{Beta1: c.AdamBeta1, WeightDecay: c.WeightDecay, Beta2: c.AdamBeta2}, c.LearningRate)
	switch c.Optim {
	case "muon", "muon_8bit":
		return *j.muon()
	case "adamw_8bit":
		return optim.Quantised{By: j.adamW(c.LearningRate), Bits: 8}
	case "adamw_4bit":
		return optim.Quantised{By: j.adamW(c.LearningRate), Bits: 4}
	case "lion":
		return lion
	case "lion_8bit":
		return optim.Quantised{By: lion, Bits: 8}
	case "sgd":
		return j.grouped(optim.SGD{Momentum: c.Momentum, Nesterov: c.Nesterov, WeightDecay: c.WeightDecay}, c.LearningRate)
	}
	return j.adamW(c.LearningRate)
}

// elementwise is the optimizer, or what it moves all with that is no matrix.
func (j *job) elementwise() optim.Optimizer {
	if m := j.muon(); m != nil {
		return m.Others
	}
	return j.optimizerOf()
}

// adamW is AdamW whose highest rate is highest.
func (j *job) adamW(highest float64) optim.Elementwise {
	c := j.c
	return j.grouped(optim.AdamW{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay}, highest)
}

// grouped is an optimizer whose highest rate is highest, with the groups of lr_groups.
func (j *job) grouped(by optim.Elementwise, highest float64) optim.Elementwise {
	if groups := j.groups(highest); groups != nil {
		return optim.Grouped{By: by, Groups: groups}
	}
	return by
}

// groups are those of lr_groups for an optimizer whose highest rate is highest; nil: there are none.
func (j *job) groups(highest float64) *optim.Groups {
	if len(j.c.LRGroups) == 0 {
		return nil
	}
	out := optim.Groups{}
	for _, g := range j.c.LRGroups {
		out = append(out, optim.Group{Scale: g.LR / highest, WeightDecay: j.c.Decay(g)})
	}
	return &out
}

// setGroups puts tensors into the groups of lr_groups, and says how large these are.
func (j *job) setGroups() error {
	c := j.c
	if err := j.model.SetGroups(c.ModelGroups()); err != nil {
		return c.Errorf("lr_groups", "lr_groups: %w", err)
	}
	sizes := j.model.GroupParams()
	for i, g := range c.LRGroups {
		j.note("lr_groups: %s of %s parameters are in %s, with a learning rate of %v", humanize.Comma(sizes[i+1]), humanize.Comma(j.model.TrainedParams()), g.Name, g.LR)
	}
	return nil
}

// bf16Master says whether what streams of a matrix is its master weight.
func (j *job) bf16Master() bool { return j.c.MasterDType == "bf16" && j.act == device.BF16 }

// checkMaster refuses master weights in bf16 where nothing streams in bf16.
func (j *job) checkMaster() error {
	if j.c.MasterDType != "bf16" || j.act == device.BF16 {
		return nil
	}
	return j.c.Errorf("master_dtype", "master_dtype: bf16 keeps of weights what streams in bf16, and compute_dtype is %s, in which fp32 weights stream: set compute_dtype: bf16, or leave master_dtype out",
		j.c.ComputeDType)
}

// muon is how matrices are moved whole; nil: none are.
func (j *job) muon() *optim.Muon {
	c := j.c
	adamW := j.adamW(cmp.Or(c.AdamLR, c.LearningRate))
	bits, others := 0, optim.Optimizer(adamW)
	switch c.Optim {
	case "muon":
	case "muon_8bit":
		bits, others = 8, optim.Quantised{By: adamW, Bits: 8}
	default:
		return nil
	}
	share := func(rate float64) float64 { // of the schedule's
		if rate == 0 {
			return 1
		}
		return rate / c.LearningRate
	}
	return &optim.Muon{Momentum: c.Momentum, Nesterov: c.Nesterov, NSSteps: c.NSSteps, Adjust: optim.Adjust(c.AdjustLR), WeightDecay: c.WeightDecay,
		Bits: bits, Scale: share(c.MuonLR), Others: others, OthersScale: share(c.AdamLR), Groups: j.groups(c.LearningRate)}
}

// nsSteps is how many iterations a matrix takes that is moved whole; 0: none is.
func (j *job) nsSteps() int {
	if m := j.muon(); m != nil {
		return m.NSSteps
	}
	return 0
}

// contextBytes is the device memory that is taken before anything is allocated, and by the streams that
// compute beside the first: that of the optimizer's matrices.
func (j *job) contextBytes() int64 {
	if j.context > 0 && j.nsSteps() > 0 {
		return j.context + cuda.StreamBytes
	}
	return j.context
}
