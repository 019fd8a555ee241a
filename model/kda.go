package model

// KDA is a gated delta net whose state decays channel by channel (Kimi Delta Attention). Queries, keys and values come
// from a product and a short convolution along the tokens. A narrow product and a wide one make the decays; two further
// products make the output's gate. Source: arXiv:2510.26692; transformers, modeling_kimi_linear.
type KDA struct {
	Heads, Dim int // Dim: elements of a query, key or value, and width of the narrow products
	Taps       int // taps of the convolution
}

// Width returns the columns of all heads' queries; keys, values, decays and gates have as many.
func (r *KDA) Width() int { return r.Heads * r.Dim }

// Convolved returns how many columns pass the convolution: queries, keys and values.
func (r *KDA) Convolved() int { return 3 * r.Width() }

// Narrow returns how many columns the product RoleRecurGates has: b of every head, then the narrow vectors for decays
// and for the gate.
func (r *KDA) Narrow() int { return r.Heads + 2*r.Dim }

// ConvFLOPs implements Recurrence.
func (r *KDA) ConvFLOPs() int64 { return 2 * int64(r.Taps) * int64(r.Convolved()) }

// StateFLOPs implements Recurrence: the state is read twice and written once.
func (r *KDA) StateFLOPs() int64 { return 6 * int64(r.Width()) * int64(r.Dim) }

// kdaTensors are the names of the tensors of KDA.
var kdaTensors = tensors{
	RoleRecurIn:     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
	RoleRecurGates:  {"self_attn.b_proj.weight", "self_attn.f_a_proj.weight", "self_attn.g_a_proj.weight"},
	RoleRecurDecayB: {"self_attn.f_b_proj.weight"},
	RoleRecurGateB:  {"self_attn.g_b_proj.weight"},
	RoleRecurTaps:   {"self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight", "self_attn.v_conv1d.weight"},
	RoleRecurDecay:  {"self_attn.A_log"},
	RoleRecurDtBias: {"self_attn.dt_bias"},
	RoleRecurNorm:   {"self_attn.o_norm.weight"},
	RoleRecurOut:    {"self_attn.o_proj.weight"},
}

func (r *KDA) tensorNames(role Role) []string { return kdaTensors[role] }

func (r *KDA) params(n blockNames) []Param {
	h, w := n.c.HiddenSize, r.Width()
	decay := vector(RoleRecurDecay, n.stored(RoleRecurDecay, r.Heads))
	decay.Dims, decay.F32 = 4, true
	return []Param{matrix(RoleRecurIn, h, n.stored(RoleRecurIn, w, w, w)),
		matrix(RoleRecurGates, h, n.stored(RoleRecurGates, r.Heads, r.Dim, r.Dim)),
		matrix(RoleRecurDecayB, r.Dim, n.stored(RoleRecurDecayB, w)), matrix(RoleRecurGateB, r.Dim, n.stored(RoleRecurGateB, w)),
		n.convTaps(r.Taps, w, w, w), decay, vector(RoleRecurDtBias, n.stored(RoleRecurDtBias, w)), vector(RoleRecurNorm, n.stored(RoleRecurNorm, r.Dim)),
		matrix(RoleRecurOut, w, n.stored(RoleRecurOut, h))}
}
