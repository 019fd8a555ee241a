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

// chooseAttention settles attention_kernels and has the devices compute by them. It comes after what the
// run keeps of the one that it goes on from, and before the first operation.
func (j *job) chooseAttention() error {
	c := j.c
	if c.AttentionKernels == "auto" {
		c.AttentionKernels = j.bestAttention()
	}
	if c.Device == "cpu" {
		if c.AttentionKernels == cuda.SM90a {
			return c.Errorf("attention_kernels", "attention_kernels: sm90a: the CPU computes, and these are kernels of H100, H200 and GH200; give portable, which has no effect there")
		}
		return nil
	}
	if dim := j.model.PackedHeadDim(); dim > kernels.MaxHeadDim {
		return c.Errorf("device", "device: %s: attention's kernels take heads of at most %d elements, and the model's queries, keys or values have %d; "+
			"train it with device: cpu", c.Device, kernels.MaxHeadDim, dim)
	}
	for _, dev := range j.devs {
		if d, ok := dev.(attender); ok {
			if err := d.UseAttention(c.AttentionKernels); err != nil {
				return c.Errorf("attention_kernels", "attention_kernels: %w; results of the portable ones differ in the last bits: "+
					"go on with attention_kernels: portable and another output_dir, from the checkpoint in resume_from_checkpoint if there is one", err)
			}
		}
	}
	return nil
}

// bestAttention is what auto means.
func (j *job) bestAttention() string {
	switch {
	case j.c.Device == "cpu":
		return cuda.Portable
	case j.runsSM90a():
		return cuda.SM90a
	}
	return cuda.Fused
}

// fuses says whether attention's backward gets memory for sums.
func (j *job) fuses() bool {
	return j.c.AttentionKernels == cuda.Fused || j.c.AttentionKernels == "auto" && j.bestAttention() == cuda.Fused
}

// runsSM90a says whether all devices run the kernels for sm_90a: those that are here, or those of the machine that is
// planned for.
func (j *job) runsSM90a() bool {
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
func (j *job) attentionWords() string {
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
