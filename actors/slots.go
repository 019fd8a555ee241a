package actors

import (
	"slices"

	"mt/device"
	"mt/device/op"
	"mt/internal/accounts"
	"mt/layers"
	"mt/plan"
	"mt/schedule"
)

// slot is device memory that something stays in for a while: a tile of weights, a
// gradient, an activation. The stream that fills it records ready when it is full; the
// stream that reads it records idle when it has been read.
type slot struct {
	mem         device.Mem // none where what it is for lies on the host
	host        []byte     // of an activation slot, where hidden states lie on the host
	ready, idle device.Event
	place       placement // of the tiles of a weight slot
	index       int       // of a weight slot
}

// makeSlots allocates n slots of so many bytes; with 0 bytes a slot has no memory, only
// events.
func (r *lane) makeSlots(p accounts.Purpose, n int, bytes int64) ([]slot, error) {
	out := make([]slot, n)
	for i := range out {
		var err error
		if bytes > 0 {
			if out[i].mem, err = r.alloc(p, bytes); err != nil {
				return nil, err
			}
		}
		if out[i].ready, err = r.event(); err != nil {
			return nil, err
		}
		if out[i].idle, err = r.event(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// placement says where the device reads what is on the host: in device memory that it is
// copied to (copied), or where it lies (inPlace).
type placement interface {
	// register makes copies of a layer's tile fast, where it is copied.
	register(tile []byte, use firstUse)
	// fetch enqueues the copy of a tile into a slot and says how many bytes it moves.
	fetch(t layers.Tile, s slot) int64
	// weights views the tensors of a tile that has been fetched.
	weights(t layers.Tile, s slot) layers.Weights
	// bind returns where the device reads what is staged on the host for a batch.
	bind(staging []byte) (device.Mem, error)
	// upload enqueues the copy of what is staged to the memory that bind returned.
	upload(to device.Mem, staged []byte)
}

// placement returns that of the tiles and batches of the lane's device.
func (r *lane) placement() placement {
	return [...]placement{plan.Copied: copied{r}, plan.InPlace: inPlace{r}}[r.plan.Binding()]
}

// copied is the placement on a device with memory of its own: tiles are copied into
// slots, batches into memory that is allocated for them.
type copied struct{ r *lane }

func (c copied) register(tile []byte, use firstUse) { c.r.register(tile, use) }

func (c copied) fetch(t layers.Tile, s slot) (moved int64) {
	c.r.h2d.Wait(s.idle)
	for _, x := range t.Copies {
		c.r.h2d.CopyH2D(s.mem.Slice(x.To, x.Bytes), c.r.hostBytes(t, s, x.Layer, x.From, x.Bytes))
		moved += x.Bytes
	}
	return moved
}

func (c copied) weights(t layers.Tile, s slot) layers.Weights {
	return layers.BindWeights(t.Layout, s.mem)
}

func (c copied) bind(staging []byte) (device.Mem, error) {
	return c.r.alloc(accounts.Batch, int64(len(staging)))
}

func (c copied) upload(to device.Mem, staged []byte) { c.r.h2d.CopyH2D(to, staged) }

// inPlace is the placement on a unified device: it computes on the tiles and batches
// where they lie on the host, and nothing is copied.
type inPlace struct{ r *lane }

func (inPlace) register([]byte, firstUse) {}

func (inPlace) fetch(layers.Tile, slot) int64 { return 0 }

func (p inPlace) weights(t layers.Tile, s slot) layers.Weights {
	return layers.BindInPlace(t.Layout, p.r.dev, func(off, bytes int64) []byte {
		layer, at := t.Host(off)
		return p.r.hostBytes(t, s, layer, at, bytes)
	})
}

func (p inPlace) bind(staging []byte) (device.Mem, error) { return p.r.dev.BindHost(staging), nil }

func (inPlace) upload(device.Mem, []byte) {}

// sources are the layers whose tiles the lane copies from.
func (r *lane) sources() (out []int) {
	for l := range r.schedule.Layers {
		if slices.ContainsFunc(r.tiles, func(t layers.Tile) bool {
			return r.schedule.On(t.Layer) == int(r.index) && slices.Contains(t.Sources(), l)
		}) {
			out = append(out, l)
		}
	}
	return out
}

// allocWeights makes the weight slots of all classes.
func (r *lane) allocWeights() error {
	for _, l := range r.sources() {
		r.placement().register(r.o.Home.Tile(l), usedForward)
	}
	for class := range schedule.NumClasses {
		count, bytes := r.plan.Slots(class)
		slots, err := r.makeSlots(accounts.WeightSlots, count, bytes)
		if err != nil {
			return err
		}
		for _, s := range slots {
			s.place, s.index = r.placement(), len(r.weights)
			r.weights = append(r.weights, s)
		}
	}
	return nil
}

// gradPlace returns where the gradient of a layer is summed.
func (r *lane) gradPlace(layer int) gradPlace {
	return [...]gradPlace{plan.Copied: buffered{r}, plan.InPlace: inSlab{r}}[r.plan.GradBinding(layer)]
}

// gradPlace is where a gradient is summed over the micro-batches: in a gradient buffer
// that is copied to the host (buffered), or in the layer's slab (inSlab).
type gradPlace interface {
	// mem is the memory in which the gradient of a layer, or of a part of one, is summed.
	mem(layer, buf int) device.Mem
	// grads views the gradients of a tile's tensors.
	grads(t layers.Tile, buf int) layers.Grads
	// offload enqueues the copies of a tile's gradient into a slab.
	offload(t layers.Tile, buf, slab, ids int)
}

// buffered sums gradients in gradient buffers and copies them into slabs.
type buffered struct{ r *lane }

func (b buffered) mem(_, buf int) device.Mem { return b.r.gradBufs[buf].mem }

func (b buffered) grads(t layers.Tile, buf int) layers.Grads {
	return layers.BindGrads(t.Layout, b.r.gradBufs[buf].mem)
}

func (b buffered) offload(t layers.Tile, buf, slab, ids int) {
	r := b.r
	for _, g := range t.Ranges(ids) {
		src := r.gradBufs[buf].mem.Tensor(device.F32, 4*g.From, g.Elems)
		if r.plan.GradBF16 {
			dst := r.narrow.Tensor(device.BF16, 2*g.From, g.Elems)
			op.Do(r.dev, r.d2h.Stream, op.Convert{Dst: dst, Src: src, N: g.Elems})
			src = dst
		}
		r.d2h.CopyD2H(r.slab(slab, g.To, g.Elems).Data, src.Mem())
	}
}

// inSlab sums gradients in slabs, of which each of these layers has one. The layer's update
// has read its slab before it is written again, because the layer's next backward comes
// after that update.
type inSlab struct{ r *lane }

func (l inSlab) mem(layer, _ int) device.Mem { return l.r.dev.BindHost(l.r.slabs[layer]) }

func (l inSlab) grads(t layers.Tile, buf int) layers.Grads {
	mem, g := l.mem(t.Layer, buf), layers.Grads{}
	for _, x := range t.Layout.Tensors {
		if x.Frozen {
			continue
		}
		if at, ok := t.Slab(x.Elem); ok { // else another part's gradient has this tensor
			g[x.Role] = mem.Tensor(device.F32, 4*at, x.Elems())
		}
	}
	return g
}

func (inSlab) offload(layers.Tile, int, int, int) {}

// allocGrads makes the gradient buffers, and makes copies into the slabs fast. A run
// that only evaluates has neither.
func (r *lane) allocGrads() (err error) {
	p := r.plan
	if p.EvalOnly {
		return nil
	}
	if r.gradBufs, err = r.makeSlots(accounts.GradientBuffers, p.Depths.GradBuffers, p.BufferBytes()); err != nil {
		return err
	}
	if p.GradBF16 {
		if r.narrow, err = r.alloc(accounts.GradientBuffers, 2*p.BufferElems()); err != nil {
			return err
		}
	}
	for i, slab := range r.slabs {
		if len(slab) == 0 || p.SlabLane(i) != int(r.index) {
			continue // it is no layer's, or another lane's
		}
		r.register(slab, usedBackward)
	}
	return nil
}
