package generate

import (
	"fmt"

	"encoding/binary"

	"mt/device"
	"mt/layers"
	"mt/schedule"
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
	s, t, tile, block := d.stream, d.templates, d.tiles[l][v.Part], d.o.Layout[l].Block
	switch v.Stage {
	case schedule.Embed:
		d.embed(p)
	case schedule.Positions:
		t.PositionsForward(s, d.weights(tile), layers.OnDevice(p.y), layers.OnDevice(p.x), layers.MicroBatch{Tokens: p.step.Tokens, Pos: p.step.Pos}, d.ws)
	case schedule.Block:
		t.BlockForwardCached(s, block, d.weights(tile), p.y, p.x, p.step, d.caches[l], d.ws)
	case schedule.Attention:
		t.AttentionForwardCached(s, block, d.weights(tile), p.y, p.x, p.step, d.caches[l], d.ws)
	case schedule.Route:
		return d.route(p, tile, v.Parts)
	case schedule.Expert:
		if from, n := p.pairs(v.Part - 1); n > 0 {
			t.ExpertForward(s, d.weights(tile), p.experts, from, n, d.ws)
		}
	case schedule.Join:
		t.MoECombine(s, p.y, 0, layers.MicroBatch{Tokens: p.step.Tokens}, p.experts)
	case schedule.Head:
		return d.head(p, tile)
	default:
		panic(fmt.Sprintf("generate: nothing is written for the stage %s", v.Stage))
	}
	return nil
}

// embed brings the rows of the piece's tokens to the device.
func (d *decoder) embed(p *piece) {
	bytes := p.y.Mem().Bytes
	d.o.Store.Layers[0].GatherRows(d.staging[:bytes], 0, p.ids)
	d.stream.CopyH2D(d.rows.Mem().Slice(0, bytes), d.staging[:bytes])
	d.templates.EmbedForward(d.stream, layers.OnDevice(p.y), d.rows.Slice(0, p.y.Len),
		layers.MicroBatch{Tokens: len(p.ids), Index: p.index, UniqueRows: len(p.ids)}, 0, d.ws)
}

// route chooses experts for the piece's tokens and waits until the host knows which. parts
// is how many parts the layer has: the router's and one for each expert.
func (d *decoder) route(p *piece, router layers.Tile, parts int) error {
	s, t, n := d.stream, d.templates, p.step.Tokens
	p.experts = t.BindMoE(d.experts, n, false)
	t.MoERoute(s, d.weights(router), p.x, 0, layers.MicroBatch{Tokens: n}, p.experts, d.ws, true)
	t.MoESort(s, p.experts, n, false)
	if err := s.Sync(); err != nil { // staging may be read until here
		return err
	}
	p.offsets = d.staging[:4*parts] // one more than there are experts
	s.CopyD2H(p.offsets, p.experts.Offsets.Mem())
	return s.Sync()
}

// pairs says which pairs of a token and a choice expert e has, counted from 0: n of them,
// from number from on in the list that is sorted by expert.
func (p *piece) pairs(e int) (from, n int) {
	at := func(e int) int { return int(binary.LittleEndian.Uint32(p.offsets[4*e:])) }
	return at(e), at(e+1) - at(e)
}

// head writes the logits of the last token to staging, where they are wanted.
func (d *decoder) head(p *piece, tile layers.Tile) error {
	if !p.last {
		return nil
	}
	h := int64(d.o.Config.HiddenSize)
	d.templates.HeadLogits(d.stream, d.weights(tile), d.logits, p.x.Slice(p.x.Len-h, h), 1, d.ws)
	if err := d.stream.Sync(); err != nil { // staging holds the rows until here
		return err
	}
	d.stream.CopyD2H(d.staging[:d.logits.Mem().Bytes], d.logits.Mem())
	return nil
}
