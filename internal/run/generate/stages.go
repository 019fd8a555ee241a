package generate

import (
	"encoding/binary"

	"mt/device"
	"mt/layers"
	"mt/layers/schedule"
)

// piece is a number of consecutive tokens that go through all layers together.
type piece struct {
	ids           []int32
	last          bool // the piece ends the sequence so far, so its last token needs logits
	step          layers.CacheStep
	index, tokens device.Tensor // each token's row of the embedding rows, and its id
	x, y          device.Tensor // (tokens, hidden) act: a layer's input and output

	// For the current layer with experts: the state of its router on the device, and in the staging buffer the offset
	// of each expert's (token, choice) pairs in the sorted list of all pairs.
	experts layers.MoEState
	offsets []byte
}

// stage enqueues the launch of the visit v to layer number l for the piece p. An expert without tokens in the piece
// gets no launch, nor does the head unless the piece is the last.
func (d *decoder) stage(p *piece, l int, v schedule.Visit) error {
	layout, tile := &d.o.Layout[l], d.tiles[l][v.Part]
	v.Phase = schedule.Generate
	x := layers.Launch{Stream: d.stream, Visit: v, Block: layout.Block, First: true, Last: true, In: layers.OnDevice(p.x), Out: layers.OnDevice(p.y), Workspace: d.ws,
		MicroBatch: layers.MicroBatch{Tokens: p.step.Tokens, Pos: p.step.Pos, Index: p.index, IDs: p.tokens, UniqueRows: p.step.Tokens}, BatchTokens: p.step.Tokens,
		Cached: p.step, Cache: d.caches[l], Logits: d.logits}
	switch v.Stage {
	case schedule.Embed:
		x.Rows = d.bringRows(p)
	case schedule.Route:
		p.experts = d.templates.BindMoE(d.experts, p.step.Tokens, false)
	case schedule.Expert:
		if x.From, x.Pairs = p.pairs(v.Part - 1); x.Pairs == 0 {
			return nil
		}
	case schedule.Head:
		if !p.last {
			return nil
		}
		h := int64(d.o.Config.HiddenSize)
		x.In.Dev = p.x.Slice(int64(p.step.Tokens-1)*h, h)
	}
	x.Experts = p.experts
	if v.Weighs() {
		x.Weights = d.weights(tile)
	}
	layers.KindOf(layout.Kind).Launch(d.templates, &x)
	switch v.Stage {
	case schedule.Route:
		return d.bringOffsets(p, v.Parts)
	case schedule.Head:
		return d.bringLogits()
	}
	return nil
}

// bringRows enqueues a copy of the embedding rows of the piece's tokens to the device and returns them there.
func (d *decoder) bringRows(p *piece) device.Tensor {
	n := int64(p.step.Tokens) * int64(d.o.Config.HiddenSize)
	bytes := n * d.o.Act.Size()
	d.o.Store.Layers[0].GatherRows(d.staging[:bytes], 0, p.ids)
	d.stream.CopyH2D(d.rows.Mem().Slice(0, bytes), d.staging[:bytes])
	return d.rows.Slice(0, n)
}

// bringOffsets copies to the host how many of the piece's tokens each expert gets, and waits for the copy. parts is the
// number of parts of the layer: the router and each expert.
func (d *decoder) bringOffsets(p *piece, parts int) error {
	if err := d.stream.Sync(); err != nil { // staging may be read until here
		return err
	}
	p.offsets = d.staging[:4*parts] // number of experts + 1
	d.stream.CopyD2H(p.offsets, p.experts.Offsets.Mem())
	return d.stream.Sync()
}

// pairs returns the range of expert e (from 0) in the list of (token, choice) pairs sorted by expert: its first index
// and its length.
func (p *piece) pairs(e int) (from, n int) {
	at := func(e int) int { return int(binary.LittleEndian.Uint32(p.offsets[4*e:])) }
	return at(e), at(e+1) - at(e)
}

// bringLogits copies the last token's logits to the staging buffer on the host.
func (d *decoder) bringLogits() error {
	if err := d.stream.Sync(); err != nil { // staging holds the rows until here
		return err
	}
	d.stream.CopyD2H(d.staging[:d.logits.Mem().Bytes], d.logits.Mem())
	return nil
}
