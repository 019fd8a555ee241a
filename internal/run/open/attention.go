package open

import (
	"mt/device/cuda"
	"mt/device/cuda/kernels"
)

// Attender is a GPU, for which there are several attention kernels to choose from.
type Attender interface {
	RunsSM90a() bool
	UseAttention(kernels string) error
}

// BestAttention returns the attention kernels that the value auto of attention_kernels chooses.
func (in *Inputs) BestAttention() string {
	switch {
	case in.Config.Device == "cpu":
		return cuda.Portable
	case in.runsSM90a():
		return cuda.SM90aFused
	}
	return cuda.Fused
}

// Fuses reports whether attention's backward uses a kernel that computes all its gradients at once. That kernel
// needs memory for partial sums.
func (in *Inputs) Fuses() bool { return cuda.NeedsSums(in.attention()) }

// attention returns the value of attention_kernels, resolved.
func (in *Inputs) attention() string {
	if in.Config.AttentionKernels == "auto" {
		return in.BestAttention()
	}
	return in.Config.AttentionKernels
}

// runsSM90a reports whether all devices run kernels for sm_90a. These are the opened devices or, for a plan, the
// devices of the machine that the plan is for.
func (in *Inputs) runsSM90a() bool {
	if len(in.Devices) == 0 && in.Profile != nil {
		for lane := range max(1, in.Lanes) {
			if !in.Profile.On(lane).Device.SM90a {
				return false
			}
		}
		return true
	}
	for _, dev := range in.Devices {
		if d, ok := dev.(Attender); !ok || !d.RunsSM90a() {
			return false
		}
	}
	return len(in.Devices) > 0
}

// AttentionWords describes the kernels for the model's attention; "" for the CPU. chooses: an indexer may choose the keys.
func (in *Inputs) AttentionWords(chooses bool) string {
	c := in.Config
	switch {
	case c.Device != "cuda":
		return ""
	case chooses:
		return "attention by the kernels for chosen keys"
	case c.AttentionKernels == "auto" && len(in.Devices) == 0 && in.Profile == nil:
		return "attention by the kernels for sm_90a where the GPU is one of these, else by those for all GPUs"
	case in.attention() == cuda.Fused:
		return "attention by the kernels for all GPUs, all gradients by one"
	case c.AttentionKernels == cuda.Portable:
		return "attention by the kernels for all GPUs"
	}
	dim := in.Model.PackedHeadDim()
	if lacking := kernels.LackingForSM90a(dim, in.Act, in.Model.AttnSoftcap > 0); lacking != kernels.LackingNothing {
		return lacking.Of(dim)
	}
	return "attention by the kernels for sm_90a"
}
