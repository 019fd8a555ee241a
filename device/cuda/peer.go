package cuda

import (
	"errors"
	"fmt"

	"mt/cudart"
	"mt/device"
)

// Reach gives this device access to the memory of another GPU, where there is a way over NVLink or
// PCI Express. Access lasts as long as the context.
func (d *dev) Reach(to device.Device) (bool, error) {
	other, ok := device.Inner(to).(*dev)
	if !ok || other.cuda != d.cuda || other.opts.Ordinal == d.opts.Ordinal {
		return false, nil
	}
	d.peersMu.Lock()
	defer d.peersMu.Unlock()
	if d.peers[other.opts.Ordinal] {
		return true, nil
	}
	can, err := d.cuda.DeviceCanAccessPeer(d.opts.Ordinal, other.opts.Ordinal)
	if err == nil && can {
		err = d.cuda.DeviceEnablePeerAccess(d.context, other.opts.Ordinal)
	}
	switch {
	case errors.Is(err, cudart.ErrNotSupported): // such as too many peers
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cuda: reach device %d from device %d: %w", other.opts.Ordinal, d.opts.Ordinal, err)
	}
	if can {
		d.peers[other.opts.Ordinal] = true
	}
	return can, nil
}

// reached is the ordinal of a device that Reach was true of; for any other it gives an error.
func (d *dev) reached(to device.Device) (int, error) {
	other, ok := device.Inner(to).(*dev)
	if !ok {
		return 0, fmt.Errorf("%s is no GPU", to.Name())
	}
	d.peersMu.RLock()
	defer d.peersMu.RUnlock()
	if !d.peers[other.opts.Ordinal] {
		return 0, fmt.Errorf("device %d has no access to device %d", d.opts.Ordinal, other.opts.Ordinal)
	}
	return other.opts.Ordinal, nil
}
