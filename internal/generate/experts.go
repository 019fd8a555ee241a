package generate

import (
	"encoding/binary"

	"mt/device"
	"mt/layers"
	"mt/model"
)

// part binds part k of a layer with experts in place, or copies it into the slot.
func (d *decoder) part(l model.Layout, k int) layers.Weights {
	at := l.PartRange(k)
	tile := d.o.Store.Layers[l.Index].Tile[at.TileOff : at.TileOff+at.TileBytes]
	if d.o.Device.Unified() {
		return layers.BindInPlace(l.Part(k), d.o.Device, tile, nil)
	}
	d.stream.CopyH2D(d.slot.Slice(0, at.TileBytes), tile)
	return layers.BindWeights(l.Part(k), d.slot)
}

// expertLayer runs n tokens through the experts that they choose, one expert
// after the other. It waits until it is known who goes where.
func (d *decoder) expertLayer(l model.Layout, y, x device.Tensor, n int) error {
	s, t, mb := d.stream, d.templates, layers.MicroBatch{Tokens: n}
	st := t.BindMoE(d.experts, n, false)
	t.MoERoute(s, d.part(l, 0), x, 0, mb, st, d.ws, true)
	t.MoESort(s, st, n, false)
	if err := s.Sync(); err != nil { // staging may be read until here
		return err
	}
	offsets := d.staging[:4*l.Parts()] // one more than there are experts
	s.CopyD2H(offsets, st.Offsets.Mem())
	if err := s.Sync(); err != nil {
		return err
	}
	at := func(e int) int { return int(binary.LittleEndian.Uint32(offsets[4*e:])) }
	for e := range l.Parts() - 1 {
		if pairs := at(e+1) - at(e); pairs > 0 {
			t.ExpertForward(s, d.part(l, 1+e), st, at(e), pairs, d.ws)
		}
	}
	t.MoECombine(s, y, 0, mb, st)
	return nil
}
