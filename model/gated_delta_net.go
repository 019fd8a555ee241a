package model

// GatedDeltaNet is linear attention that replaces attention in some blocks. Each head carries a
// state matrix from token to token and updates it by the gated delta rule. Its queries, keys and
// values pass a short convolution along the tokens first. Source: arXiv:2412.06464; transformers,
// modeling_qwen3_next.
type GatedDeltaNet struct {
	KeyHeads, Heads  int // numbers of key heads and value heads; Heads is a multiple of KeyHeads
	KeyDim, ValueDim int
	Taps             int // taps of the convolution
}

// Keys returns the number of columns of all heads' keys together. Queries have as many.
func (r *GatedDeltaNet) Keys() int { return r.KeyHeads * r.KeyDim }

// Values returns the number of columns of all heads' values together.
func (r *GatedDeltaNet) Values() int { return r.Heads * r.ValueDim }

// Convolved returns the number of columns of queries, keys and values, which pass the convolution.
func (r *GatedDeltaNet) Convolved() int { return 2*r.Keys() + r.Values() }

// ConvFLOPs implements Recurrence: one multiply-add per tap and column.
func (r *GatedDeltaNet) ConvFLOPs() int64 { return 2 * int64(r.Taps) * int64(r.Convolved()) }

// StateFLOPs implements Recurrence. A token reads the state twice and writes it once, and each of
// these takes a multiply-add per element.
func (r *GatedDeltaNet) StateFLOPs() int64 {
	return 6 * int64(r.Heads) * int64(r.KeyDim) * int64(r.ValueDim)
}

// gatedDeltaTensors are the usual tensor names of a gated delta net, after the block's prefix.
var gatedDeltaTensors = tensors{
	RoleRecurIn:     {"linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight"},
	RoleRecurGates:  {"linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight"},
	RoleRecurTaps:   {"linear_attn.conv1d.weight"},
	RoleRecurDecay:  {"linear_attn.A_log"},
	RoleRecurDtBias: {"linear_attn.dt_bias"},
	RoleRecurNorm:   {"linear_attn.norm.weight"},
	RoleRecurOut:    {"linear_attn.out_proj.weight"},
}

// outputGateTensors are the usual names of attention's input projections if attention has an output
// gate.
var outputGateTensors = tensors{
	RoleQKV:     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.gate_proj.weight"},
	RoleQKVBias: {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.gate_proj.bias"},
}

// jointQueries and jointQueryPlaces are for checkpoints whose q_proj holds queries and output gates
// together, alternating head by head. No checkpoint has the names query and gate, which mt gives to
// the two halves of q_proj.
var (
	jointQueries = tensors{
		RoleQKV:     {"self_attn.query.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.gate.weight"},
		RoleQKVBias: {"self_attn.query.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.gate.bias"},
	}
	jointQueryPlaces = map[Role]placed{RoleQKV: {tensor: "self_attn.q_proj.weight"}, RoleQKVBias: {tensor: "self_attn.q_proj.bias"}}
)

func (r *GatedDeltaNet) tensorNames(role Role) []string { return gatedDeltaTensors[role] }

func (r *GatedDeltaNet) params(n blockNames) []Param {
	h := n.c.HiddenSize
	in := []int{r.Keys(), r.Keys(), r.Values(), r.Values()}
	if len(n.named(RoleRecurIn)) == 2 {
		in = []int{r.Convolved(), r.Values()}
	}
	return []Param{matrix(RoleRecurIn, h, n.stored(RoleRecurIn, in...)),
		matrix(RoleRecurGates, h, n.stored(RoleRecurGates, r.Heads, r.Heads)), n.convTaps(r.Taps, r.Convolved()),
		vector(RoleRecurDecay, n.stored(RoleRecurDecay, r.Heads)), vector(RoleRecurDtBias, n.stored(RoleRecurDtBias, r.Heads)),
		vector(RoleRecurNorm, n.stored(RoleRecurNorm, r.ValueDim)),
		matrix(RoleRecurOut, r.Values(), n.stored(RoleRecurOut, h))}
}

// queries returns attention's tensors for queries, keys, values and the output gate, if there is
// one. If keys also serve as values, there are no tensors of values. q and kv are the numbers of
// rows of queries and of keys. With a gate, queries and gate may be one tensor of the checkpoint,
// which alternates a head's query rows and gate rows.
func (n blockNames) queries(r Role, q, kv int) []Stored {
	switch {
	case n.c.Heads(n.block).Shared:
		return stack(n.named(r)[:1], q)
	case n.c.Heads(n.block).KeysAreValues:
		return stack(n.named(r)[:2], q, kv)
	case !n.c.OutputGate:
		return n.stored(r, q, kv, kv)
	}
	stored := stack(n.named(r), q, kv, kv, q)
	if f := n.c.family; f != nil && f.places[r] != (placed{}) {
		d, tensor := n.c.HeadDim, n.prefix()+f.places[r].tensor
		stored[0].Place = Place{Tensor: tensor, Run: d, Step: 2 * d, Rows: 2 * q}
		stored[3].Place = Place{Tensor: tensor, First: d, Run: d, Step: 2 * d, Rows: 2 * q}
	}
	return stored
}

// Bounds on the sizes of gated delta nets: the limits of the device operation that computes them.
const (
	maxRecurHeads = 64
	maxRecurDim   = 128
	maxTaps       = 8
	// The value of layer_types for blocks with a gated delta net.
	linearAttention = "linear_attention"
)

// gatedDeltaKeys are the keys of config.json that Config.gatedDeltaFields reads.
var gatedDeltaKeys = []string{"linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads", "linear_num_value_heads",
	"layer_types", "full_attention_interval"}

// gatedDeltaFields reads the sizes of gated delta nets and the blocks that have one. Without layer_types every
// full_attention_interval-th block has attention.
func (c *Config) gatedDeltaFields(f *fields) {
	r := &GatedDeltaNet{KeyHeads: f.int("linear_num_key_heads", 16, 1, maxRecurHeads), Heads: f.int("linear_num_value_heads", 32, 1, maxRecurHeads),
		KeyDim: f.int("linear_key_head_dim", 128, 1, maxRecurDim), ValueDim: f.int("linear_value_head_dim", 128, 1, maxRecurDim),
		Taps: f.int("linear_conv_kernel_dim", 4, 1, maxTaps)}
	if r.KeyHeads > 0 && r.Heads%r.KeyHeads != 0 {
		f.fail("linear_num_value_heads", "%d heads do not share %d key heads evenly", r.Heads, r.KeyHeads)
	}
	types, every := c.typesOfLayers(f), f.int("full_attention_interval", 4, 1, maxLayers)
	c.recurrentBlocks(f, types, linearAttention, func(b int) bool { return (b+1)%every != 0 })
	if c.Recurrent == nil {
		return
	}
	c.GatedDeltaNet = r
	if c.Activation != SiLU {
		f.fail("hidden_act", "%s is not supported with layers of type %s, whose convolution it would follow; known: silu", show(f.vals["hidden_act"]), linearAttention)
	}
}

func (c *Config) gatedDeltaJSON(m map[string]any) {
	m["layer_types"] = c.recurrentTypes(linearAttention, fullAttention)
	if r := c.GatedDeltaNet; r != nil {
		m["linear_num_key_heads"], m["linear_num_value_heads"], m["linear_conv_kernel_dim"] = r.KeyHeads, r.Heads, r.Taps
		m["linear_key_head_dim"], m["linear_value_head_dim"] = r.KeyDim, r.ValueDim
	}
}
