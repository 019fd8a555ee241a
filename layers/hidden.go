package layers

import "mt/device"

// Hidden is a hidden state of a micro-batch, or its gradient: (T, h) act. It is on the device or, with Spec.OnHost, in
// host memory, which is fastest if registered with the device.
type Hidden struct {
	Dev  device.Tensor
	Host []byte
}

// OnDevice returns the hidden state t.
func OnDevice(t device.Tensor) Hidden { return Hidden{Dev: t} }

// None says whether h is no hidden state.
func (h Hidden) None() bool { return h.Dev.None() && h.Host == nil }

// hidden returns h as rows. If h is on the host, chunk is the device memory for one chunk of it.
func (t *Templates) hidden(h Hidden, chunk rows) rows {
	if h.Host == nil {
		return whole(h.Dev, t.dims.hidden)
	}
	chunk.host = h.Host
	return chunk
}

// onHost returns the bytes of the rows of c on the host.
func (r rows) onHost(c span) []byte {
	bytes := int64(r.width) * r.t.DType.Size()
	return r.host[int64(c.at)*bytes : int64(c.at+c.n)*bytes]
}

// fetch enqueues copies of the rows of c to the device, of those matrices that are on the host.
func fetch(s device.Stream, c span, of ...rows) {
	for _, r := range of {
		if r.host != nil {
			CopyUp(s, r.of(c).Mem(), r.onHost(c))
		}
	}
}

// store enqueues the copy of the rows of c back to the host, if r is there.
func store(s device.Stream, c span, r rows) {
	if r.host != nil {
		CopyDown(s, r.onHost(c), r.of(c).Mem())
	}
}
