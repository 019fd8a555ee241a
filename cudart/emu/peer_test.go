package emu_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// TestPeerCopies: a device with peer access copies to and from the other device's memory, and
// events order the work of both.
func TestPeerCopies(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		p := openPair(t, o)
		a, b := &p.each[0], &p.each[1]
		for dev := range 2 {
			for peer := range 2 {
				if can, err := p.c.DeviceCanAccessPeer(dev, peer); can != (dev != peer) || err != nil {
					t.Errorf("device %d can access device %d: %t, %v", dev, peer, can, err)
				}
			}
		}
		for range 2 { // enabling it twice is no error
			p.must(p.c.DeviceEnablePeerAccess(a.ctx, 1))
		}
		x, y := a.host(512), b.host(512)
		for i := range x {
			x[i] = byte(3 * i)
		}
		a.h2d(a.p, x, a.s)
		p.must(b.MemsetAsync(b.p, 7, 512, b.s))
		p.must(b.EventRecord(b.e, b.s))
		p.must(a.StreamWaitEvent(a.s, b.e))
		p.must(b.peerCopy(a.rig, b.p+64, a.p, a.rig, 128, a.s))
		p.must(a.EventRecord(a.e, a.s))
		p.must(b.StreamWaitEvent(b.s, a.e))
		b.d2h(y, b.p, b.s)
		b.sync(b.s)
		want := bytes.Repeat([]byte{7}, 512)
		copy(want[64:], x[:128])
		if !bytes.Equal(y, want) {
			t.Errorf("the other device has %v", y)
		}
		p.must(b.MemsetAsync(b.p, 9, 512, b.s)) // the reverse direction, by the same device
		p.must(b.EventRecord(b.e, b.s))
		p.must(a.StreamWaitEvent(a.s, b.e))
		p.must(a.peerCopy(a.rig, a.p, b.p, b.rig, 512, a.s))
		a.d2h(x, a.p, a.s)
		a.sync(a.s)
		if want := bytes.Repeat([]byte{9}, 512); !bytes.Equal(x, want) {
			t.Errorf("the device has %v", x)
		}
		p.must(errors.Join(a.FreeHost(x), b.FreeHost(y)))
		if faults := p.d.Faults(); len(faults) > 0 {
			t.Error(faults)
		}
		p.must(a.ReleasePrimaryContext(0)) // ends the access
		a.ctx, a.own = 0, false
		if err := b.peerCopy(a.rig, b.p, a.malloc(64), a.rig, 64, a.stream()); err == nil {
			t.Error("a new context has the access that was given to the old one")
		}
	})
}

// TestPeerFaults: a wrong copy between two devices is recorded as a fault that names both devices.
func TestPeerFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(p *pair, a, b *half) error
		kind emu.Kind
		says []string
	}{
		"no access": {func(p *pair, a, b *half) error { return a.peerCopy(b.rig, a.p, b.p, b.rig, 64, b.s) },
			emu.Device, []string{"copy of 64 bytes from device 1 to device 0 on stream #2 of device 1", "device 1 has no access to device 0"}},
		"memory": {func(p *pair, a, b *half) error { return b.peerCopy(a.rig, a.p, a.p, a.rig, 64, a.s) },
			emu.Device, []string{"copy of 64 bytes from device 0 to device 1 on device 1: 64 bytes at offset 0 of device memory #1 (512 bytes) of device 0"}},
		"bounds": {func(p *pair, a, b *half) error { return b.peerCopy(a.rig, b.p+500, a.p, a.rig, 64, a.s) },
			emu.Bounds, []string{"64 bytes at offset 500 of device memory #2"}},
		"a third device's stream": {func(p *pair, a, b *half) error {
			c := &rig{CUDA: p.c, t: p.t, d: p.d, ordinal: 2}
			return b.peerCopy(c, b.p, a.p, a.rig, 64, c.stream())
		}, emu.Device, []string{"from device 0 to device 1: stream #3 of device 2 is of device 2"}},
		"kernel with access": {func(p *pair, a, b *half) error {
			p.must(p.launch(a.ctx, a.f, a.s, b.p))
			return a.StreamSynchronize(a.s)
		}, emu.Kernel, []string{"kernel store on stream #1 of device 0", "of device 1; the kernel runs on device 0"}},
		"written without order": {func(p *pair, a, b *half) error {
			p.must(b.peerCopy(a.rig, b.p, a.p, a.rig, 64, a.s))
			b.d2h(b.host(64), b.p, b.s)
			return errors.Join(a.StreamSynchronize(a.s), b.StreamSynchronize(b.s))
		}, emu.Order, []string{"device memory #2", "copy of 64 bytes from device 0 to device 1 on stream #1 of device 0", "copy to host of 64 bytes on stream #2 of device 1"}},
		"read without order": {func(p *pair, a, b *half) error {
			p.must(a.MemsetAsync(a.p, 1, 64, 0))
			p.must(b.peerCopy(a.rig, b.p, a.p, a.rig, 64, a.s))
			return errors.Join(a.StreamSynchronize(a.s), a.StreamSynchronize(0))
		}, emu.Order, []string{"device memory #1", "copy of 64 bytes from device 0 to device 1 on stream #1 of device 0", "set of 64 bytes on the default stream of device 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := openDevices(t, emu.Options{}, 3)
			a, b := &p.each[0], &p.each[1]
			p.must(errors.Join(a.MemsetAsync(a.p, 0, 512, a.s), b.MemsetAsync(b.p, 0, 512, b.s), a.StreamSynchronize(a.s), b.StreamSynchronize(b.s)))
			p.must(p.c.DeviceEnablePeerAccess(a.ctx, 1))
			if err := tc.do(p, a, b); (err == nil) != (tc.kind == emu.Order) {
				t.Errorf("the call says %v", err)
			}
			a.expect(tc.kind, tc.says...)
		})
	}
}

// TestWithoutPeers: with Options.WithoutPeers, cudaDeviceCanAccessPeer returns 0, and enabling
// access is an error.
func TestWithoutPeers(t *testing.T) {
	p := openPair(t, emu.Options{WithoutPeers: true})
	if can, err := p.c.DeviceCanAccessPeer(0, 1); can || err != nil {
		t.Errorf("device 0 can access device 1: %t, %v", can, err)
	}
	if err := p.c.DeviceEnablePeerAccess(p.each[0].ctx, 1); !errors.Is(err, cudart.ErrNotSupported) || !strings.Contains(err.Error(), "peer access is not supported") {
		t.Errorf("access is given: %v", err)
	}
	for _, ordinal := range []int{0, 2} { // itself, and a missing device
		if err := p.c.DeviceEnablePeerAccess(p.each[0].ctx, ordinal); err == nil || !strings.Contains(err.Error(), "invalid device ordinal") {
			t.Errorf("access to device %d: %v", ordinal, err)
		}
	}
}
