package emu

import "fmt"

// This file emulates peer access: access of one device to the memory of another. Here only copies
// between two devices use it, and only if the device of the stream has access to the other. Kernels
// and other copies never use it, although real hardware allows that.

// runtimePeers returns the peer functions of libcudart.
func runtimePeers() []symbol {
	return []symbol{
		{name: "cudaDeviceCanAccessPeer", need: needDevice, bind: func(c caller) any {
			return func(can *int32, dev, peer int32) int32 {
				return c.do(func(d *Driver) int32 { return d.canAccessPeer(can, dev, peer) })
			}
		}},
		{name: "cudaDeviceEnablePeerAccess", need: needRuntime, bind: func(c caller) any {
			return func(peer int32, flags uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.enablePeerAccess(peer, flags) })
			}
		}},
		{name: "cudaMemcpyPeerAsync", need: needRuntime, bind: func(c caller) any {
			return func(dst uint64, to int32, src uint64, from int32, n, s uint64) int32 {
				return c.do(func(d *Driver) int32 { return d.memcpyPeerAsync(dst, to, src, from, n, s) })
			}
		}},
	}
}

// canAccessPeer is cudaDeviceCanAccessPeer. A device is not a peer of itself.
func (d *Driver) canAccessPeer(can *int32, dev, peer int32) int32 {
	return d.onDevice(dev, func(a *gpu) int32 {
		return d.onDevice(peer, func(b *gpu) int32 {
			yes := int32(0)
			if a != b && !d.opt.WithoutPeers {
				yes = 1
			}
			return put(can, yes)
		})
	})
}

// enablePeerAccess is cudaDeviceEnablePeerAccess.
func (d *Driver) enablePeerAccess(peer int32, flags uint32) int32 {
	if flags != 0 {
		return errInvalidValue
	}
	return d.onDevice(peer, func(b *gpu) int32 {
		switch g := d.here(); {
		case g == b:
			return errInvalidDevice
		case d.opt.WithoutPeers:
			return errPeerUnsupported
		case g.peers[b]:
			return errPeerAlreadyEnabled
		case g.peers == nil:
			g.peers = map[*gpu]bool{b: true}
		default:
			g.peers[b] = true
		}
		return 0
	})
}

// memcpyPeerAsync is cudaMemcpyPeerAsync. Without peer access CUDA would copy through the host. mt
// never wants this, so it is a fault.
func (d *Driver) memcpyPeerAsync(dst uint64, to int32, src uint64, from int32, n, sh uint64) int32 {
	const call = "cudaMemcpyPeerAsync"
	s, ok := d.streamOf(sh, call)
	if !ok {
		return errInvalidHandle
	}
	return d.onDevice(to, func(b *gpu) int32 {
		return d.onDevice(from, func(a *gpu) int32 {
			o := &op{gpu: s.gpu, what: fmt.Sprintf("copy of %d bytes from %s to %s", n, a, b)}
			other := b
			if s.gpu == b {
				other = a
			}
			switch {
			case n == 0:
				return 0
			case s.gpu != a && s.gpu != b:
				return d.badMemory(Device, "%s: %s is of %s", o.what, s.name, s.gpu)
			case other != s.gpu && !s.gpu.peers[other]:
				return d.badMemory(Device, "%s on %s: %s has no access to %s", o.what, s.name, s.gpu, other)
			}
			w, at, code := d.deviceRange(o.what, b, dst, n)
			if code != 0 {
				return code
			}
			r, off, code := d.deviceRange(o.what, a, src, n)
			if code != 0 {
				return code
			}
			o.spans = []span{{&w.region, at, at + int64(n), true}, {&r.region, off, off + int64(n), false}}
			into, bytes := w.Data[at:at+int64(n)], r.Data[off:off+int64(n)]
			o.run = func() ([]span, error) {
				if copy(into, bytes); d.opt.SpoilPeers {
					spoil(into)
				}
				return nil, nil
			}
			d.enqueue(s, o)
			return 0
		})
	})
}
