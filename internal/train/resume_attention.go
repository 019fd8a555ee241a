package train

import (
	"mt/device/cuda"
	"mt/device/cuda/kernels"
)

// chooseAttention settles attention_kernels and has the devices compute by them. It comes after what the
// run keeps of the one that it goes on from, and before the first operation.
func (j *finding) chooseAttention() error {
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
