package train

import (
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
	lion := optim.Lion{Beta1: c.AdamBeta1, WeightDecay: c.WeightDecay, Beta2: c.AdamBeta2}
	switch c.Optim {
	case "muon", "muon_8bit":
		return *j.muon()
	case "adamw_8bit":
		return optim.Quantised{By: j.adamW(), Bits: 8}
	case "adamw_4bit":
		return optim.Quantised{By: j.adamW(), Bits: 4}
	case "lion":
		return lion
	case "lion_8bit":
		return optim.Quantised{By: lion, Bits: 8}
	case "sgd":
		return optim.SGD{Momentum: c.Momentum, Nesterov: c.Nesterov, WeightDecay: c.WeightDecay}
	}
	return j.adamW()
}

// elementwise is the optimizer, or what it moves all with that is no matrix.
func (j *job) elementwise() optim.Optimizer {
	if m := j.muon(); m != nil {
		return m.Others
	}
	return j.optimizerOf()
}

func (j *job) adamW() optim.AdamW {
	c := j.c
	return optim.AdamW{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay}
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
	bits, others := 0, optim.Optimizer(j.adamW())
	switch c.Optim {
	case "muon":
	case "muon_8bit":
		bits, others = 8, optim.Quantised{By: j.adamW(), Bits: 8}
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
		Bits: bits, Scale: share(c.MuonLR), Others: others, OthersScale: share(c.AdamLR)}
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
