package cuda

import "mt/cudart"

// ofHost returns the free device memory in bytes, before the context was made and at present. For
// most GPUs these are its arguments before and free, CUDA's own numbers. An integrated GPU uses
// host memory, and CUDA counts the page cache as used. The system drops the page cache when a
// process needs memory, so for such a GPU ofHost calls Options.Available.
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
