package cuda

import (
	"bytes"
	"errors"
	"fmt"

	"mt/base/accounts"
	"mt/cudart"
	"mt/device"
)

// Reach gives this device access to the memory of another GPU, if NVLink or PCI Express connects
// them. It returns false if there is no such path or the path corrupts bytes. Access lasts as long
// as the context.
func (d *dev) Reach(to device.Device) (bool, error) {
	other, ok := device.Inner(to).(*dev)
	if !ok || other.cuda != d.cuda {
		return false, nil
	}
	d.peersMu.Lock()
	defer d.peersMu.Unlock()
	if known, asked := d.peers[other.opts.Ordinal]; asked {
		return known, nil
	}
	can, err := d.cuda.DeviceCanAccessPeer(d.opts.Ordinal, other.opts.Ordinal)
	if err == nil && can {
		err = d.cuda.DeviceEnablePeerAccess(d.context, other.opts.Ordinal)
	}
	switch {
	case errors.Is(err, cudart.ErrNotSupported): // for example, too many peers
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cuda: reach device %d from device %d: %w", other.opts.Ordinal, d.opts.Ordinal, err)
	}
	if !can {
		return false, nil
	}
	right, err := d.copiesTo(other)
	if err != nil {
		return false, fmt.Errorf("cuda: try a copy from device %d to device %d: %w", d.opts.Ordinal, other.opts.Ordinal, err)
	}
	if d.peers[other.opts.Ordinal] = right; !right {
		d.note(fmt.Sprintf("device %d cannot copy to device %d: the driver says that it can, and other bytes arrive (an IOMMU or ACS that is on does that); what passes between them goes through the host",
			d.opts.Ordinal, other.opts.Ordinal))
	}
	return right, nil
}

// copiesTo makes a test copy to another device and reports whether the right bytes arrive. With some IOMMUs wrong bytes
// arrive although no call fails.
func (d *dev) copiesTo(other *dev) (right bool, err error) {
	const n = 64 << 10
	host, err := d.AllocHost(2 * n)
	if err != nil {
		return false, err
	}
	defer d.FreeHost(host)
	sent, got := host[:n], host[n:]
	for i := range sent {
		sent[i] = byte(i*i>>7 + i + 1)
	}
	src, err := d.Alloc(accounts.Workspace, n)
	if err != nil {
		return false, err
	}
	defer d.Free(src)
	dst, err := other.Alloc(accounts.Workspace, n)
	if err != nil {
		return false, err
	}
	defer other.Free(dst)
	up, err := d.NewStream("peer")
	if err != nil {
		return false, err
	}
	down, err := other.NewStream("peer")
	if err != nil {
		return false, errors.Join(err, up.Close())
	}
	down.Zero(dst)
	err = down.Sync()
	up.CopyH2D(src, sent)
	up.(*stream).copyPeer(other, dst, src)
	err = errors.Join(err, up.Close()) // Close waits for the copy
	down.CopyD2H(got, dst)
	err = errors.Join(err, down.Close())
	return bytes.Equal(sent, got), err
}

// reached returns the GPU behind the device to, which may be wrapped. It returns an error unless
// Reach has returned true for that GPU.
func (d *dev) reached(to device.Device) (*dev, error) {
	other, ok := device.Inner(to).(*dev)
	if !ok {
		return nil, fmt.Errorf("%s is no GPU", to.Name())
	}
	d.peersMu.RLock()
	defer d.peersMu.RUnlock()
	if !d.peers[other.opts.Ordinal] {
		return nil, fmt.Errorf("device %d has no access to device %d", d.opts.Ordinal, other.opts.Ordinal)
	}
	return other, nil
}
