package model

// ShortConv is a gated short convolution. One product makes b, c and x of a token. A causal convolution of few taps
// runs over b·x, and c multiplies its output. Source: arXiv:2511.23404; transformers, modeling_lfm2.
type ShortConv struct {
	Channels, Taps int
	Bias           bool // the convolution and both products have biases
}

// ConvFLOPs implements Recurrence: one multiply-add per tap and channel.
func (r *ShortConv) ConvFLOPs() int64 { return 2 * int64(r.Taps) * int64(r.Channels) }

// StateFLOPs implements Recurrence. It is 0, because a short convolution carries no state.
func (r *ShortConv) StateFLOPs() int64 { return 0 }

// shortConvTensors are the usual tensor names of a gated short convolution, after the block's
// prefix.
var shortConvTensors = tensors{
	RoleRecurIn:       {"conv.in_proj.weight"},
	RoleRecurInBias:   {"conv.in_proj.bias"},
	RoleRecurTaps:     {"conv.conv.weight"},
	RoleRecurTapsBias: {"conv.conv.bias"},
	RoleRecurOut:      {"conv.out_proj.weight"},
	RoleRecurOutBias:  {"conv.out_proj.bias"},
}

func (r *ShortConv) tensorNames(role Role) []string { return shortConvTensors[role] }

func (r *ShortConv) params(n blockNames) []Param {
	h := n.c.HiddenSize
	p := []Param{matrix(RoleRecurIn, h, n.stored(RoleRecurIn, 3*r.Channels)), n.convTaps(r.Taps, r.Channels)}
	if r.Bias {
		p = append(p, vector(RoleRecurInBias, n.stored(RoleRecurInBias, 3*r.Channels)),
			vector(RoleRecurTapsBias, n.stored(RoleRecurTapsBias, r.Channels)), vector(RoleRecurOutBias, n.stored(RoleRecurOutBias, h)))
	}
	return append(p, matrix(RoleRecurOut, r.Channels, n.stored(RoleRecurOut, h)))
}
