package layers

import "mt/device"

// Hidden is a hidden state of a micro-batch, or its gradient: (T, h) act. It is on the device or, with Spec.OnHost, in
// host memory, which is fastest if registered with the device.
type Hidden struct {
	Dev  device.Tensor
	Host []byte
}

// OnDevice returns a Hidden for the hidden state t, which is in device memory.
func OnDevice(t device.Tensor) Hidden { return Hidden{Dev: t} }

// None reports whether h is empty: a launch without this input or output.
func (h Hidden) None() bool { return h.Dev.None() && h.Host == nil }

// Kept is memory for what the forward keeps for its backward besides the layer's input. It is on the device or, with
// Spec.OnHost, in host memory.
type Kept struct {
	Dev  device.Mem
	Host []byte
}

// Bytes returns the size of k.
func (k Kept) Bytes() int64 { return max(k.Dev.Bytes, int64(len(k.Host))) }

// Slice returns n bytes of k, from byte at.
func (k Kept) Slice(at, n int64) Kept {
	if k.Host != nil {
		return Kept{Host: k.Host[at : at+n]}
	}
	return Kept{Dev: k.Dev.Slice(at, n)}
}

// hidden returns h as rows with one row per token. If h is on the host, the rows' device memory is chunk, which holds
// one chunk of h at a time.
func (t *Templates) hidden(h Hidden, chunk rows) rows {
	if h.Host == nil {
		return whole(h.Dev, t.dims.hidden)
	}
	chunk.host = h.Host
	return chunk
}

// onHost returns the host memory of r's rows for the tokens in c.
func (r rows) onHost(c span) []byte {
	bytes := int64(r.width) * r.t.DType.Size()
	return r.host[int64(c.at)*bytes : int64(c.at+c.n)*bytes]
}

// fetch copies the rows of chunk c to the device on stream s, for each argument whose rows are on
// the host. It does nothing for the others.
func fetch(s device.Stream, c span, of ...rows) {
	for _, r := range of {
		if r.host != nil {
			CopyUp(s, r.of(c).Mem(), r.onHost(c))
		}
	}
}

// store copies the rows of chunk c from the device back to the host on s, if r is on the host.
func store(s device.Stream, c span, r rows) {
	if r.host != nil {
		CopyDown(s, r.onHost(c), r.of(c).Mem())
	}
}
