package cuda

import "mt/cudart"

// ofHost returns how much device memory was free before the context and is free now, in bytes. The two are what CUDA says,
// unless the GPU is integrated: its memory is the host's, and CUDA counts copies of files in it as used, which the
// system drops when a process wants the memory.
func (d *dev) ofHost(before, free, total int64) (int64, int64, error) {
	integrated, err := d.cuda.DeviceAttribute(cudart.AttrIntegrated, d.opts.Ordinal)
	if err != nil || integrated == 0 {
		return before, free, err
	}
	d.usage.Integrated = true
	if d.opts.Available == nil {
		return before, free, nil
	}
	available, known := d.opts.Available()
	if !known {
		return before, free, nil
	}
	free = min(total, available)
	return free + AssumedContext, free, nil
}
