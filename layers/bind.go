package layers

import (
	"mt/device"
	"mt/model"
)

// BindInPlace views the tensors of layout where they lie on the host, for a unified device.
// host returns the memory there of so many bytes, from byte off of what would be their slot.
func BindInPlace(layout model.Layout, dev device.Device, host func(off, bytes int64) []byte) Weights {
	w := Weights{}
	for _, t := range layout.Tensors {
		dt := device.F32
		if t.BF16 {
			dt = device.BF16
		}
		w[t.Role] = dev.BindHost(host(t.TileOff, t.TileBytes())).Tensor(dt, 0, t.Elems())
	}
	return w
}
