package layers

import "mt/device"

// Hidden is a hidden state of a micro-batch, or its gradient: (T, h) act, on the device or,
// with Spec.OnHost, on the host, in memory that is best registered with the device.
type Hidden struct {
	Dev  device.Tensor
	Host []byte
}

// OnDevice is the hidden state t.
func OnDevice(t device.Tensor) Hidden { return Hidden{Dev: t} }

// None says whether h is no hidden state.
func (h Hidden) None() bool { return h.Dev.None() && h.Host == nil }

// hidden is h as rows. Where it lies on the host, chunk is where one chunk of it is on the
// device.
func (t *Templates) hidden(h Hidden, chunk rows) rows {
	if h.Host == nil {
		return whole(h.Dev, t.dims.hidden)
	}
	chunk.host = h.Host
	return chunk
}

// onHost are the bytes of the rows of c on the host.
func (r rows) onHost(c span) []byte {
	bytes := int64(r.width) * r.t.DType.Size()
	return r.host[int64(c.at)*bytes : int64(c.at+c.n)*bytes]
}

// fetch enqueues copies to the device of the rows of c that lie on the host. Rows that lie
// on the device are there already.
func fetch(s device.Stream, c span, of ...rows) {
	for _, r := range of {
		if r.host != nil {
			CopyUp(s, r.of(c).Mem(), r.onHost(c))
		}
	}
}

// store enqueues the copy back.
func store(s device.Stream, c span, r rows) {
	if r.host != nil {
		CopyDown(s, r.onHost(c), r.of(c).Mem())
	}
}
