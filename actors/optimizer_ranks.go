package actors

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"mt/host"
	"mt/host/optim"
	"mt/internal/ranks"
)

// This file is what the Optimizer does where several ranks train together. It adds up what all
// have sent of this rank's shares, in the order of the exchanges. With clipping the ranks agree
// on the norm once a step, when all shares are added up; without it on the sum of squares of
// every layer, before it is updated, so that all see alike that one is not finite.

// agreeNorm sums what all ranks have measured of a layer or, with Layer −1, of all.
type agreeNorm struct {
	Step, Layer int
	Squares     float64 // of this rank's share
}

// normAgreed tells what they have measured together.
type normAgreed struct {
	Layer   int
	Squares float64
}

func (m normAgreed) with(result any) any {
	m.Squares = result.(float64)
	return m
}

// summed notes what is known of this rank's share of a layer's gradient. With clipping its
// exchange buffer is free; else the share slab beside that is still to be read.
func (c *optimizerCore) summed(m summed) []effect {
	s, l := c.cur, m.Layer
	if m.IDs != nil {
		s.ids = m.IDs
	}
	s.squares[l] = m.Squares
	if c.clip > 0 {
		s.have[l] = true
		return c.free(s, l)
	}
	return []effect{work{do: agreeNorm{Step: s.step, Layer: l, Squares: m.Squares}, done: []send{{optimizerID, normAgreed{Layer: l}}}}}
}

// agree has the ranks agree on the norm.
func (c *optimizerCore) agree(s *stepState) []effect {
	if s.asked {
		return nil
	}
	s.asked = true
	var own float64
	for _, sq := range s.squares {
		own += sq
	}
	return []effect{work{do: agreeNorm{Step: s.step, Layer: -1, Squares: own}, done: []send{{optimizerID, normAgreed{Layer: -1}}}}}
}

// spoil ends the run without clipping when a gradient is not finite, which all ranks do after the
// same exchanges, agreements and updates: nothing that they do together is left under way.
func (c *optimizerCore) spoil(s *stepState) []effect {
	if slices.Contains(c.saving, true) {
		return nil // ranks write a layer together
	}
	c.cur = nil
	return []effect{send{gathererID, GradSpoilt{Step: s.step, Layer: s.spoilt, Finite: s.finite}}}
}

// start returns the error that ends a run without clipping.
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
	r.allGather(optimizerID, w, r.team.norm, what, own, func(values [][]byte) (any, error) {
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

// readInt is the number that v begins with.
func readInt(v []byte) int { return int(int64(binary.LittleEndian.Uint64(v))) }

// allGather tells all ranks a value, and makes the result of what all have told.
func (r *run) allGather(id address, w work, c ranks.Comm, what string, value []byte, found func([][]byte) (any, error)) {
	var all [][]byte
	r.collective(id, w, what, func(done func(error)) {
		c.AllGather(value, func(values [][]byte, err error) {
			all = values
			done(err)
		})
	}, func() (any, error) { return found(all) })
}

// updateShare updates this rank's share of a layer.
func (r *run) updateShare(l *host.LayerState, e update, rate optim.Rate) {
	if g := r.gradients[e.Layer]; g.OfRows(e.Layer) {
		l.UpdateRows(e.IDs, r.sum(e.Slab, int64(len(e.IDs))*g.Row), r.o.Optimizer, rate)
		return
	}
	l.Update(r.sum(e.Slab, r.plan.Share(e.Layer).Elems()), r.o.Optimizer, rate)
}
