package actors

import "mt/plan"

// The Offloader brings to the host what the device computed: gradients into
// slabs, activations into spill buffers, losses. It owns the slabs' credits.
// "Landed" means that the bytes are on the host, not that the copy is enqueued.

// offloaderCore is the pure part of the Offloader.
type offloaderCore struct {
	programs map[int]*Pass // by Seq, while something of theirs may come
	pool     bool          // slabs are a credit; else slab = layer, always free
	slabs    []int
	waiting  []GradComputed
	landing  int // slab that the parts of a layer's gradient go on landing in; −1: none
}

func newOffloaderCore(clip bool, d plan.Depths) *offloaderCore {
	c := &offloaderCore{programs: map[int]*Pass{}, pool: !clip, landing: -1}
	if c.pool {
		c.slabs = ids(d.GradSlabs)
	}
	return c
}

// spill copies an activation to its host buffer.
type spill struct{ Slot, Host, Tokens int }

// offloadGrad copies the gradient of a tile into its range of a slab and records
// that the buffer is idle once it is read.
type offloadGrad struct {
	Layer, Part, Tile, Buf, Slab int
	IDs                          []int32 // the batch's
}

// offloadRouting copies the places of the experts' pairs to the host. Its done
// message, RoutingLanded, is made by the shell, as it holds them.
type offloadRouting struct {
	p     *Pass
	Layer int
}

// offloadLoss copies the losses of p to the host and sums them. Its done
// message is made by the shell, as it holds the sum.
type offloadLoss struct{ p *Pass }

func (c *offloaderCore) step(msg any) []any {
	switch m := msg.(type) {
	case PassPlanned:
		c.programs[m.Pass.Seq] = m.Pass
		delete(c.programs, m.Pass.Seq-programsKept)
	case ActivationComputed:
		o := c.programs[m.Prog].Objects[m.Object]
		return []any{work{do: spill{Slot: m.Slot, Host: o.Host, Tokens: o.Tokens}, done: []any{
			send{prefetcherID, ActivationSpilled{Prog: m.Prog, Object: m.Object}},
			send{prefetcherID, ActivationSlotFreed{m.Slot}}}}}
	case LossComputed:
		return []any{work{do: offloadLoss{c.programs[m.Prog]}}}
	case RoutingComputed:
		return []any{work{do: offloadRouting{p: c.programs[m.Prog], Layer: m.Layer}}}
	case GradComputed:
		c.waiting = append(c.waiting, m)
	case SlabFreed:
		if c.pool {
			c.slabs = append(c.slabs, m.Slab)
		}
	default:
		panic(unexpected(offloaderID, msg))
	}
	return c.advance()
}

// programsKept is how many programs back a late message may come from.
const programsKept = 4

func (c *offloaderCore) advance() []any {
	var out []any
	for len(c.waiting) > 0 && (!c.pool || c.landing >= 0 || len(c.slabs) > 0) {
		m := c.waiting[0]
		c.waiting = c.waiting[1:]
		slab := m.Layer
		if c.landing >= 0 {
			slab = c.landing // the parts of a layer come one after the other
		} else if c.pool {
			slab, c.slabs = c.slabs[0], c.slabs[1:]
		}
		c.landing = -1
		if m.Part > 0 {
			c.landing = slab
		}
		ids := c.programs[m.Prog].Batch.UniqueIDs
		w := work{do: offloadGrad{Layer: m.Layer, Part: m.Part, Tile: m.Tile, Buf: m.Buf, Slab: slab, IDs: ids}}
		if m.Part == 0 {
			w.done = send{optimizerID, GradLanded{Step: m.Step, Layer: m.Layer, Slab: slab, IDs: ids}}
		}
		out = append(out, w, send{computeID, GradBufferFreed{m.Buf}})
	}
	return out
}
