package actors

import (
	"slices"

	"mt/data"
	"mt/host/optim"
	"mt/plan"
)

// The Exchanger exists with several ranks. Layer by layer, it sends each rank that rank's share of the gradient that
// this rank has computed. It receives this rank's share from all others into exchange buffers, whose credits it owns.
//
// Layers are exchanged in the order of the backward, which is the same on all ranks whatever their timing: collective
// operations require one order. A table that two layers share comes last, when both gradients are in one slab.

// exchangerCore is the pure part of the Exchanger.
type exchangerCore struct {
	into     []int         // by layer: the layer whose gradient its own is added to. This is the layer itself, unless two layers share a table
	order    []int         // the layers with a gradient, in the order of their exchanges
	landed   []*GradLanded // by layer: its gradient in a slab; nil: not landed, or already exchanged
	merged   []bool        // by layer: its gradient is added to the shared table's
	begun    int           // layers of order whose exchange has begun
	buffer   []int         // by layer: its exchange buffer
	done     []bool        // by layer: its exchange is done
	reported int           // layers of order reported to the Optimizer
	free     []int         // free exchange buffers
}

// newExchangerCore makes the core. `into` says by layer to which layer's gradient its own is added: the layer itself,
// unless two layers share a table. frozen says by layer that it has no gradient; nil: none is frozen.
func newExchangerCore(into []int, frozen []bool, d plan.Depths) *exchangerCore {
	n := len(into)
	c := &exchangerCore{into: into, landed: make([]*GradLanded, n), merged: make([]bool, n), buffer: make([]int, n), done: make([]bool, n), free: ids(d.ExchangeBuffers)}
	c.order = slices.DeleteFunc(backwardOrder(into), func(l int) bool { return frozen != nil && frozen[l] })
	return c
}

// backwardOrder returns the layers in the order in which their gradients are complete: from the last layer to the
// first, then the layers that share a table. A shared table is complete when the gradients of both layers have landed.
// Of these two the embedding comes first, because the next batch needs it first. `into` says by layer to which layer's
// gradient its own is added.
func backwardOrder(into []int) (order []int) {
	sharing := map[int]int{}
	for _, k := range into {
		sharing[k]++
	}
	var last []int
	for l := len(into) - 1; l >= 0; l-- {
		if sharing[into[l]] > 1 {
			last = append(last, l)
		} else {
			order = append(order, l)
		}
	}
	slices.Reverse(last)
	return append(order, last...)
}

// exchange is the task of sending each rank its share of a layer's gradient, from a slab, and receiving this rank's
// share from all ranks into an exchange buffer.
type exchange struct {
	Step, Layer, Slab, Buffer int
	AllIDs                    [][]int32
}

// exchanged tells the Exchanger that the exchange of a layer's gradient is done.
type exchanged struct{ Layer int }

// toExchanger makes the message that sends a landed gradient to the Exchanger. It adds the unique token ids of all
// ranks' batches, which say to which embedding rows a gradient belongs.
func toExchanger(m GradLanded, b *data.Batch) send {
	if b.Ranks != nil {
		m.AllIDs = b.Ranks.IDs
	}
	return send{exchangerID, m}
}

func (c *exchangerCore) step(msg message) []effect {
	var out []effect
	switch m := msg.(type) {
	case GradLanded:
		c.landed[m.Layer] = &m
		out = c.merge(m.Layer)
	case merged:
		c.merged[m.Layer] = true
		rows := c.landed[m.Layer]
		out = append(out, send{rows.Lane.offloader(), SlabFreed{rows.Slab}})
	case exchanged:
		c.done[m.Layer] = true
		out = append(c.freed(m.Layer), c.tell()...)
	case ExchangeBufferFreed:
		c.free = append(c.free, m.Buffer)
	default:
		panic(unexpected(exchangerID, msg))
	}
	return append(out, c.advance()...)
}

// merge starts to add the gradients of two layers that share a table (tied embeddings). landed is
// the layer whose gradient has just landed. It returns nil if this layer shares no table or the
// other gradient is missing.
func (c *exchangerCore) merge(landed int) []effect {
	for l, into := range c.into {
		if l != into && (landed == l || landed == into) && c.landed[l] != nil && c.landed[into] != nil {
			rows := c.landed[l]
			return []effect{work{do: merge{Layer: l, Rows: rows.Slab, Into: c.landed[into].Slab, IDs: rows.IDs}, done: []send{{exchangerID, merged{l}}}}}
		}
	}
	return nil
}

// ready reports whether the gradient of layer l can be exchanged: it has landed, and if layers share a table, their
// gradients are added.
func (c *exchangerCore) ready(l int) bool {
	for k, into := range c.into {
		if into == c.into[l] && (c.landed[k] == nil || k != into && !c.merged[k]) {
			return false
		}
	}
	return true
}

// advance begins the next exchanges, in the fixed order, until an exchange buffer or a gradient is missing.
func (c *exchangerCore) advance() (out []effect) {
	for c.begun < len(c.order) && len(c.free) > 0 {
		l := c.order[c.begun]
		if !c.ready(l) {
			break
		}
		m := c.landed[l]
		c.begun++
		c.buffer[l], c.free = c.free[0], c.free[1:]
		out = append(out, work{do: exchange{Step: m.Step, Layer: l, Slab: c.landed[c.into[l]].Slab, Buffer: c.buffer[l], AllIDs: m.AllIDs},
			done: []send{{exchangerID, exchanged{l}}}})
	}
	return out
}

// freed returns the slab of layer l's gradient to the Offloader. It returns nil while another layer that shares the
// slab has not been exchanged.
func (c *exchangerCore) freed(l int) []effect {
	for k, into := range c.into {
		if into == c.into[l] && !c.done[k] {
			return nil
		}
	}
	slab := c.landed[c.into[l]]
	return []effect{send{slab.Lane.offloader(), SlabFreed{slab.Slab}}}
}

// tell reports finished exchanges to the Optimizer in the fixed order, whatever order they end in. The Optimizer's
// sums, updates and agreements follow its messages, so they have the same order on all ranks.
func (c *exchangerCore) tell() (out []effect) {
	for c.reported < len(c.order) && c.done[c.order[c.reported]] {
		l := c.order[c.reported]
		m := c.landed[l]
		out = append(out, send{optimizerID, GradExchanged{Step: m.Step, Layer: l, Buffer: c.buffer[l], AllIDs: m.AllIDs}})
		c.reported++
	}
	if c.reported == len(c.order) { // the next step's gradients come after this step's are summed
		c.begun, c.reported = 0, 0
		clear(c.landed)
		clear(c.merged)
		clear(c.done)
	}
	return out
}

// start begins the exchange. The parts for the ranks lie in the slab in rank order.
func (e exchange) start(r *lane, w work) error {
	t, shares := r.comm, r.run.plan.Shares[e.Layer]
	sent, received := make([]int, t.size), make([]int, t.size)
	var first, all, own int64 // in elements
	if g := r.gradients[e.Layer]; !g.OfRows(e.Layer) {
		first = g.From
	}
	for k := range t.size {
		to, of := r.sharePart(e.Layer, shares[k], e.AllIDs, t.rank), r.sharePart(e.Layer, shares[t.rank], e.AllIDs, k)
		sent[k], received[k] = int(to*r.run.plan.GradBytes()), int(of*r.run.plan.GradBytes())
		all, own = all+to, own+of
	}
	t.sent.Add(all*r.run.plan.GradBytes() - int64(sent[t.rank]))
	from, to := r.slab(e.Slab, first, all).Data, t.received[e.Buffer][:own*r.run.plan.GradBytes()]
	r.collective(exchangerID, w, "exchange the gradient of "+r.names[e.Layer], func(done func(error)) {
		t.gradients.AllToAllV(from, sent, to, received, done)
	}, nil)
	return nil
}

// sharePart returns how many elements of a layer's gradient, as the given rank sends it, lie in share s. For a gradient
// of embedding rows this depends on the token ids in that rank's batch (allIDs[rank]).
func (r *run) sharePart(layer int, s optim.Share, allIDs [][]int32, rank int) int64 {
	if g := r.gradients[layer]; g.OfRows(layer) {
		from, to := s.Rows(allIDs[rank], g.Row)
		return to - from
	}
	return s.Elems()
}

// sumShare is the task of adding up, in rank order, the parts of a layer's gradient that all ranks have sent into
// exchange buffer Buffer. The sum goes into share slab Into, host memory for the gradient of this rank's share. The
// task then computes the sum of the squares of its elements.
type sumShare struct {
	Step, Layer, Buffer, Into int
	AllIDs                    [][]int32
}

// shareSum is the result of sumShare. The message summed carries both fields to the Optimizer.
type shareSum struct {
	squares float64
	ids     []int32
}

// summed tells the Optimizer that this rank's share of a layer's gradient is summed over all ranks.
type summed struct {
	Layer   int
	Squares float64
	IDs     []int32 // for a gradient of rows: the ids with elements in the share
}

func (m summed) withResult(result any) message {
	found := result.(shareSum)
	m.Squares, m.IDs = found.squares, found.ids
	return m
}

func (e sumShare) start(r *lane, w work) error {
	r.hub.async(optimizerID, w, func() (any, error) { return r.sumShare(e), nil })
	return nil
}

// sumShare adds up the parts of task e and computes the sum of squares.
func (r *run) sumShare(e sumShare) (out shareSum) {
	g, own, pool := r.gradients[e.Layer], r.plan.Share(e.Layer), r.o.Pool
	var parts []optim.Grad
	var at int64
	for k := range r.comm.size {
		n := r.sharePart(e.Layer, own, e.AllIDs, k)
		size := r.plan.GradBytes()
		parts = append(parts, optim.Grad{Data: r.comm.received[e.Buffer][at*size : (at+n)*size], BF16: r.plan.GradBF16, Elems: n})
		at += n
	}
	if g.OfRows(e.Layer) {
		out.ids = own.Touched(e.AllIDs, g.Row)
		sum := r.sum(e.Into, int64(len(out.ids))*g.Row)
		own.SumRows(pool, sum, out.ids, e.AllIDs, parts, g.Row)
		out.squares = optim.SumSquares(pool, sum)
		return out
	}
	sum := r.sum(e.Into, own.Elems())
	optim.SumParts(pool, sum, parts)
	for _, t := range r.plan.Layouts[e.Layer].Tensors {
		if from, to := max(t.Elem, own.From), min(t.Elem+t.Elems(), own.To); from < to && !t.Ref && !t.Frozen {
			out.squares += optim.SumSquares(pool, sum.Part(from-own.From, to-from))
		}
	}
	return out
}
