package train

import (
	"mt/device/cuda"
	"mt/device/cuda/kernels"
)

// attender is a device that can compute attention by other kernels than those that every GPU runs.
type attender interface {
	RunsSM90a() bool
	UseAttention(kernels string) error
}

// bestAttention is what auto means.
func (j *Inputs) bestAttention() string {
	switch {
	case j.c.Device == "cpu":
		return cuda.Portable
	case j.runsSM90a():
		return cuda.SM90a
	}
	return cuda.Fused
}

// fuses says whether attention's backward gets memory for sums.
func (j *Inputs) fuses() bool {
	return j.c.AttentionKernels == cuda.Fused || j.c.AttentionKernels == "auto" && j.bestAttention() == cuda.Fused
}

// runsSM90a says whether all devices run the kernels for sm_90a: those that are here, or those of the machine that is
// planned for.
func (j *Inputs) runsSM90a() bool {
	if len(j.devs) == 0 && j.profile != nil {
		for lane := range max(1, j.lanes) {
			if !j.profile.On(lane).Device.SM90a {
				return false
			}
		}
		return true
	}
	for _, dev := range j.devs {
		if d, ok := dev.(attender); !ok || !d.RunsSM90a() {
			return false
		}
	}
	return len(j.devs) > 0
}

// attentionWords says by which kernels a GPU computes the model's attention; empty for the CPU.
func (j *Inputs) attentionWords() string {
	c := j.c
	switch {
	case c.Device != "cuda":
		return ""
	case c.AttentionKernels == "auto" && len(j.devs) == 0 && j.profile == nil:
		return "attention by the kernels for sm_90a where the GPU is one of these, else by those for all GPUs"
	case j.fuses():
		return "attention by the kernels for all GPUs, all gradients by one"
	case c.AttentionKernels == cuda.Portable:
		return "attention by the kernels for all GPUs"
	}
	dim := j.model.PackedHeadDim()
	if lacking := kernels.LackingForSM90a(dim, j.act, j.model.AttnSoftcap > 0); lacking != kernels.LackingNothing {
		return lacking.Of(dim)
	}
	return "attention by the kernels for sm_90a"
}
