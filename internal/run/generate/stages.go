package generate

import (
	"encoding/binary"

	"mt/device"
	"mt/layers"
	"mt/layers/schedule"
)

// piece is tokens of the sequence that go through all layers together.
type piece struct {
	ids   []int32
	last  bool // it ends the sequence so far, so the logits of its last token are wanted
	step  layers.CacheStep
	index device.Tensor
	x, y  device.Tensor // (tokens, hidden) act: a layer's input and output

	// Of the layer with experts at work: its state, and, in staging, where each
	// expert's pairs begin.
	experts layers.MoEState
	offsets []byte
}

// stage enqueues what a visit to layer l does for a piece.
func (d *decoder) stage(p *piece, l int, v schedule.Visit) error {
	layout, tile := &d.o.Layout[l], d.tiles[l][v.Part]
	v.Phase = schedule.Generate
	x := layers.Launch{Stream: d.stream, Visit: v, Block: layout.Block, First: true, Last: true, In: layers.OnDevice(p.x), Out: layers.OnDevice(p.y), Workspace: d.ws,
		MicroBatch: layers.MicroBatch{Tokens: p.step.Tokens, Pos: p.step.Pos, Index: p.index, UniqueRows: p.step.Tokens}, BatchTokens: p.step.Tokens,
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
		x.In.Dev = p.x.Slice(p.x.Len-int64(d.o.Config.HiddenSize), int64(d.o.Config.HiddenSize))
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

// bringRows brings the embedding's rows of the piece's tokens to the device.
func (d *decoder) bringRows(p *piece) device.Tensor {
	bytes := p.y.Mem().Bytes
	d.o.Store.Layers[0].GatherRows(d.staging[:bytes], 0, p.ids)
	d.stream.CopyH2D(d.rows.Mem().Slice(0, bytes), d.staging[:bytes])
	return d.rows.Slice(0, p.y.Len)
}

// bringOffsets waits until the host knows which experts are chosen for the piece's tokens. parts
// is how many parts the layer has: the router's and one for each expert.
func (d *decoder) bringOffsets(p *piece, parts int) error {
	if err := d.stream.Sync(); err != nil { // staging may be read until here
		return err
	}
	p.offsets = d.staging[:4*parts] // one more than there are experts
	d.stream.CopyD2H(p.offsets, p.experts.Offsets.Mem())
	return d.stream.Sync()
}

// pairs says which pairs of a token and a choice expert e has, counted from 0: n of them,
// from number from on in the list that is sorted by expert.
func (p *piece) pairs(e int) (from, n int) {
	at := func(e int) int { return int(binary.LittleEndian.Uint32(p.offsets[4*e:])) }
	return at(e), at(e+1) - at(e)
}

// bringLogits brings the logits of the last token to staging.
func (d *decoder) bringLogits() error {
	if err := d.stream.Sync(); err != nil { // staging holds the rows until here
		return err
	}
	d.stream.CopyD2H(d.staging[:d.logits.Mem().Bytes], d.logits.Mem())
	return nil
}
