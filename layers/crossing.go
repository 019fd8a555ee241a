package layers

import "mt/layers/schedule"

// Crosses returns the bytes that one launch of visit v copies: up to the device, and down to the host. block is the
// layer's decoder block. Both are 0 unless hidden states are on the host. Launches copy the bytes on their compute
// stream.
func (s Spec) Crosses(v schedule.Visit, block, tokens int) (up, down int64) {
	if !s.OnHost {
		return 0, 0
	}
	d := s.dims(block)
	x, qkv, o, gate := int64(d.hidden), int64(d.qkv), int64(d.o), int64(0)
	switch {
	case !d.groups: // the rows of a recurrence stay on the device
		qkv, o = 0, 0
	case d.gated:
		gate = int64(d.out)
		qkv -= gate
	}
	backward, alone := v.Phase == schedule.Backward, !s.Config.Mixes(block)
	sum := int64(0) // of the experts, kept for the norm's backward
	if s.Config.NormsExperts() && v.Phase != schedule.Evaluate && block >= s.NoBackward {
		sum = x
	}
	mixer := v.Stage == schedule.Block || v.Stage == schedule.Attention
	switch {
	case v.Stage == schedule.Embed && backward:
		up = x * int64((d.hidden+d.embedPart()-1)/d.embedPart())
	case v.Stage == schedule.Embed:
		down = x
	case v.Stage == schedule.Positions && backward:
		up = x
	case v.Stage == schedule.Positions:
		up, down = x, x
	case v.Stage == schedule.Block && alone && backward:
		up, down = 2*x, x
	case v.Stage == schedule.Block && alone:
		up, down = x, x
	case v.Stage == schedule.Expert: // its tokens are in the state
	case v.Stage == schedule.Route && backward:
		up = 2*x + sum
		if s.Config.DenseBesideExperts { // the input again
			up += x
		}
	case v.Stage == schedule.Route:
		up = x
	case v.Stage == schedule.Combine && backward:
		up, down = 2*x+sum, x
	case v.Stage == schedule.Combine:
		if down = x + sum; s.Config.NormsExperts() {
			up = x
		}
	case mixer && backward:
		// projecting, attending again, the MLP or the output's gradient, attention backward, projecting backward
		up = x + qkv + (2*x + o + gate) + (qkv + 2*o) + (2*x + qkv + gate)
		down = (qkv + gate) + o + (o + gate + x) + qkv + x
		if d.beside { // the recurrence projects by itself
			up += x
		}
	case mixer:
		up, down = x+qkv+(x+o+gate), (qkv+gate)+o+x
	default: // the head, or a part of it
		if up = x; backward {
			down = x
		}
		if backward && v.Parts > 1 && !v.FirstPart() {
			up += x
		}
	}
	n := int64(tokens) * d.act.Size()
	return n * up, n * down
}
