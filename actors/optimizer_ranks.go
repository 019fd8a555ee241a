package actors

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"mt/base/cluster"
	"mt/host"
)

// This file is the Optimizer's part for several ranks. It sums the parts of this rank's shares in the order of the
// exchanges. With clipping, the ranks agree on the norm once a step, after all sums. Without clipping, they agree on
// each layer's sum of squares before its update, so all ranks see a non-finite gradient.

// agreeNorm is the task of adding up the sums of squares of a gradient over all ranks, for one layer. Layer −1: for all
// layers together.
type agreeNorm struct {
	Step, Layer int
	Squares     float64 // of this rank's share
}

// normAgreed brings the result of agreeNorm to the Optimizer: the sum of squares over all ranks,
// for one layer. Layer −1: for all layers together.
type normAgreed struct {
	Layer   int
	Squares float64
}

func (m normAgreed) withResult(result any) message {
	m.Squares = result.(float64)
	return m
}

// rankCore is the subcore for several ranks. It manages the gradients of this rank's shares: the parts that all ranks
// have sent, in exchange buffers, and their sums, in share slabs.
type rankCore struct {
	c      *optimizerCore
	allIDs [][]int32 // unique ids of each rank's batch
	buffer []int     // by layer: the exchange buffer in use; −1: none
	// With clipping, the ranks agree once a step on the gradient norm. The last step to begin this
	// is asked, the last step to complete it agreed, and normSquares the square of the norm.
	asked, agreed int
	normSquares   float64
}

func newRankCore(c *optimizerCore) *rankCore {
	p := &rankCore{c: c, buffer: slices.Repeat([]int{-1}, c.layers)}
	c.grads, c.listener, c.subcores = p, gathererListener{}, append(c.subcores, p)
	c.into = ids(c.layers) // the Exchanger merges gradients of a shared table
	return p
}

func (p *rankCore) take(msg message) ([]effect, bool) {
	switch m := msg.(type) {
	case GradExchanged:
		s := p.c.open(m.Step)
		p.allIDs, p.buffer[m.Layer], s.landed[m.Layer] = m.AllIDs, m.Buffer, m.Layer
		if p.c.clip == 0 {
			s.landed[m.Layer] = m.Buffer
		}
		p.landed(s, m.Layer)
	case summed:
		p.c.busy = false
		return p.summed(m), true
	case normAgreed:
		if s := p.c.cur; m.Layer < 0 {
			p.normSquares, p.agreed = m.Squares, s.step
		} else {
			s.squares[m.Layer], s.have[m.Layer] = m.Squares, true
		}
	default:
		return nil, false
	}
	return nil, true
}

// summed stores the sum of squares of this rank's share of a layer's gradient. With clipping, the exchange buffer is
// free then. Without clipping, the buffer and the share slab with the same index stay in use, because the ranks must
// still agree on the layer's norm (agreeNorm).
func (p *rankCore) summed(m summed) []effect {
	s, l := p.c.cur, m.Layer
	if m.IDs != nil {
		s.ids = m.IDs
	}
	s.squares[l] = m.Squares
	if p.c.clip > 0 {
		s.have[l] = true
		return p.free(s, l)
	}
	return []effect{work{do: agreeNorm{Step: s.step, Layer: l, Squares: m.Squares}, done: []send{{optimizerID, normAgreed{Layer: l}}}}}
}

// next starts the ranks' agreement on the gradient norm, in a run with clipping, when this rank's shares of all
// gradients are summed. Otherwise it returns nil.
func (p *rankCore) next() []effect {
	s := p.c.cur
	own, known := p.c.squares(s)
	if p.c.clip == 0 || s.closed == nil || !known || p.asked == s.step {
		return nil
	}
	p.asked = s.step
	return []effect{work{do: agreeNorm{Step: s.step, Layer: -1, Squares: own}, done: []send{{optimizerID, normAgreed{Layer: -1}}}}}
}

// squares returns the agreed sum of squares over all layers and ranks. known: the ranks have agreed.
func (p *rankCore) squares(s *stepState) (sum float64, known bool) {
	if p.agreed == s.step {
		return p.normSquares, true
	}
	sum, _ = p.c.squares(s)
	return sum, false
}

// nonFinite ends a run without global clipping after a non-finite gradient of layer l. All ranks do so after the same
// exchanges, agreements and updates, so no collective operation stays in progress.
func (p *rankCore) nonFinite(s *stepState, l int) []effect {
	out := p.c.dropMeasured(s)
	if slices.Contains(s.have, false) || slices.Contains(p.c.saving, true) { // ranks write a layer together
		return out
	}
	p.c.cur = nil
	return append(out, send{gathererID, GradNotFinite{Step: s.step, Layer: l, Finite: s.finite}})
}

func (p *rankCore) landed(s *stepState, l int) { s.queue = append(s.queue, l) }

func (p *rankCore) measure(s *stepState, l int) []effect {
	return []effect{work{do: sumShare{Step: s.step, Layer: l, Buffer: p.buffer[l], Into: s.landed[l], AllIDs: p.allIDs}, done: []send{{optimizerID, summed{Layer: l}}}}}
}

func (p *rankCore) measured(*stepState, int) []effect { return nil }

func (p *rankCore) free(_ *stepState, l int) []effect {
	b := p.buffer[l]
	if p.buffer[l] = -1; b < 0 {
		return nil
	}
	return []effect{send{exchangerID, ExchangeBufferFreed{b}}}
}

func (p *rankCore) drop(s *stepState, l int) []effect {
	s.landed[l] = noSlab
	return p.free(s, l)
}

// gathererListener is the updateListener with several ranks. It sends updates to the Gatherer, which notifies the other
// actors when a layer's tile is complete.
type gathererListener struct{}

func (gathererListener) layerUpdated(m LayerUpdated) []effect {
	return []effect{send{gathererID, ShareUpdated{Updated: m}}}
}

func (gathererListener) stepUpdated(m StepUpdated) effect { return send{gathererID, m} }

// start fails with the error that ends a run without global clipping after a non-finite gradient.
func (e nonFiniteGradient) start(r *lane, _ work) error {
	why, way := "without clipping (max_grad_norm: 0)", "max_grad_norm > 0"
	if r.o.MaxGradNorm > 0 {
		why, way = "with clip: layerwise", "clip: global"
	}
	return &NonFiniteError{Step: e.Step, Finite: e.Finite, err: fmt.Errorf("step %d: the gradient of %s is not finite; %s "+
		"other layers are updated already, so the run ends: set a lower learning_rate or %s", e.Step, r.names[e.Layer], why, way)}
}

func (e agreeNorm) start(r *lane, w work) error {
	what := fmt.Sprintf("agree on the norm of step %d", e.Step)
	own := binary.LittleEndian.AppendUint64(nil, uint64(e.Step))
	own = binary.LittleEndian.AppendUint64(own, uint64(int64(e.Layer)))
	own = binary.LittleEndian.AppendUint64(own, math.Float64bits(e.Squares))
	r.allGather(optimizerID, w, r.comm.norm, what, own, func(values [][]byte) (any, error) {
		var sum float64
		for rank, v := range values {
			if step, layer := readInt(v), readInt(v[8:]); step != e.Step || layer != e.Layer {
				return nil, fmt.Errorf("rank %d is at layer %d of step %d, and this one at layer %d of step %d", rank, layer, step, e.Layer, e.Step)
			}
			sum += math.Float64frombits(binary.LittleEndian.Uint64(v[16:]))
		}
		return sum, nil
	})
	return nil
}

// readInt decodes the 8-byte little-endian integer at the start of v.
func readInt(v []byte) int { return int(int64(binary.LittleEndian.Uint64(v))) }

// allGather sends value to all ranks and receives their values over c. It is the work w of actor
// id. Errors name the operation by what. Function found computes the work's result from the values,
// in rank order.
func (r *run) allGather(id address, w work, c cluster.Comm, what string, value []byte, found func([][]byte) (any, error)) {
	var all [][]byte
	r.collective(id, w, what, func(done func(error)) {
		c.AllGather(value, func(values [][]byte, err error) {
			all = values
			done(err)
		})
	}, func() (any, error) { return found(all) })
}

// updateShare updates this rank's share of a layer with the summed gradient in a share slab.
func (r *run) updateShare(l *host.LayerState, e update) {
	rate := e.rate()
	if g := r.gradients[e.Layer]; g.OfRows(e.Layer) {
		l.UpdateRows(e.IDs, r.sum(e.Slab, int64(len(e.IDs))*g.Row), r.o.Optimizer, rate)
		return
	}
	l.Update(r.sum(e.Slab, r.plan.Share(e.Layer).Elems()), r.o.Optimizer, rate)
}
