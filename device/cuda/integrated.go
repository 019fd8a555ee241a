package cuda

import "mt/cudart"

// ofHost returns the free device memory before the context and at present, in bytes. These are CUDA's numbers, unless
// the GPU is integrated. An integrated GPU uses host memory. CUDA counts the page cache as used, although the system
// drops it when a process needs memory.
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
