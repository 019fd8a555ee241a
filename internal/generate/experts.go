package generate

import (
	"encoding/binary"

	"mt/device"
	"mt/layers"
)

// expertLayer runs n tokens through the experts that they choose, one expert
// after the other. It waits until it is known who goes where. Of the layer's tiles
// the first is the router's.
func (d *decoder) expertLayer(tiles []layers.Tile, y, x device.Tensor, n int) error {
	s, t, mb := d.stream, d.templates, layers.MicroBatch{Tokens: n}
	st := t.BindMoE(d.experts, n, false)
	t.MoERoute(s, d.weights(tiles[0]), x, 0, mb, st, d.ws, true)
	t.MoESort(s, st, n, false)
	if err := s.Sync(); err != nil { // staging may be read until here
		return err
	}
	offsets := d.staging[:4*len(tiles)] // one more than there are experts
	s.CopyD2H(offsets, st.Offsets.Mem())
	if err := s.Sync(); err != nil {
		return err
	}
	at := func(e int) int { return int(binary.LittleEndian.Uint32(offsets[4*e:])) }
	for e := range len(tiles) - 1 {
		if pairs := at(e+1) - at(e); pairs > 0 {
			t.ExpertForward(s, d.weights(tiles[1+e]), st, at(e), pairs, d.ws)
		}
	}
	t.MoECombine(s, y, 0, mb, st)
	return nil
}
