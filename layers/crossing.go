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
	x, qkv, o := int64(d.hidden), int64(d.qkv), int64(d.q)
	backward := v.Phase == schedule.Backward
	switch {
	case v.Stage == schedule.Embed && backward:
		up = x * int64((d.hidden+d.embedPart()-1)/d.embedPart())
	case v.Stage == schedule.Embed:
		down = x
	case v.Stage == schedule.Positions && backward:
		up = x
	case v.Stage == schedule.Positions:
		up, down = x, x
	case v.Stage == schedule.Block && d.alone && backward:
		up, down = 2*x, x
	case v.Stage == schedule.Block && d.alone:
		up, down = x, x
	case v.Stage == schedule.Block && backward:
		up = x + qkv + (2*x + o) + (qkv + 2*o) + (2*x + qkv) // projecting, attending again, the MLP, attention backward, projecting backward
		down = qkv + o + (o + x) + qkv + x
	case v.Stage == schedule.Block:
		up, down = x+qkv+(x+o), qkv+o+x
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
