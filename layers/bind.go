package layers

import (
	"mt/device"
	"mt/model"
)

// BindInPlace views the tensors of layout where they lie on the host, for a
// unified device: the layer's own in tile, those that refer to the embedding's
// table in table.
func BindInPlace(layout model.Layout, dev device.Device, tile, table []byte) Weights {
	w := Weights{}
	for _, t := range layout.Tensors {
		dt := device.F32
		if t.BF16 {
			dt = device.BF16
		}
		from, off := tile, t.TileOff
		if t.Ref {
			from, off = table, 0 // the table is the only tensor of the embedding's tile
		}
		w[t.Role] = dev.BindHost(from).Tensor(dt, off, t.Elems())
	}
	return w
}
