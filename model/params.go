package model

// LayerKind is the kind of a streamed layer.
type LayerKind uint8

// The layer kinds, in the order they appear in a model.
const (
	Embedding LayerKind = iota
	Positions           // learned positions, which are added to the embedding
	Block               // a decoder block with a dense MLP
	Attention           // the first half of a decoder block whose MLP is experts
	MoE                 // its second half: norm, router and experts
	Recurrent           // a decoder block with a recurrence in the place of attention, and a dense MLP
	Mixer               // the first half of such a block whose MLP is experts
	Head
)

func (k LayerKind) String() string {
	return [...]string{"embedding", "positions", "block", "attention", "moe", "recurrent", "mixer", "head"}[k]
}

// BeginsBlock says whether a layer of the kind is a decoder block or the first half of one.
func (k LayerKind) BeginsBlock() bool {
	return k == Block || k == Attention || k == Recurrent || k == Mixer
}

// Role says what a parameter does in its layer's template.
type Role string

// The roles of all families. A fused role holds several matrices one after the other, by
// rows, so that one matrix product serves all. An Attention layer has the roles of a block
// up to RolePostAttnNorm.
const (
	RoleEmbed            Role = "embed"               // embedding (V, h)
	RoleAttnNorm         Role = "attn_norm"           // block (h)
	RoleQKV              Role = "qkv"                 // block ((H+2·KV)·D, h): q, then k, then v; with an output gate H·D rows of it behind them
	RoleQKVBias          Role = "qkv_bias"            // block ((H+2·KV)·D)
	RoleQNorm            Role = "q_norm"              // block (D) or, with QKNormWhole, (H·D)
	RoleKNorm            Role = "k_norm"              // block (D) or (KV·D)
	RolePositions        Role = "positions"           // positions (P, h)
	RoleAttnNormBias     Role = "attn_norm_bias"      // block (h)
	RoleMLPNormBias      Role = "mlp_norm_bias"       // block, moe part 0 (h)
	RoleUp               Role = "up"                  // block (F, h), in place of gate_up
	RoleUpBias           Role = "up_bias"             // block (F)
	RoleSinks            Role = "sinks"               // block (H)
	RoleO                Role = "o"                   // block (h, H·D)
	RoleOBias            Role = "o_bias"              // block (h)
	RolePostAttnNorm     Role = "post_attn_norm"      // block (h): norm of attention's output, before the residual
	RoleMLPNorm          Role = "mlp_norm"            // block, moe part 0 (h)
	RoleGateUp           Role = "gate_up"             // block (2·F, h): gate, then up
	RoleGateUpBias       Role = "gate_up_bias"        // block (2·F)
	RoleDown             Role = "down"                // block (h, F)
	RoleDownBias         Role = "down_bias"           // block (h)
	RolePostMLPNorm      Role = "post_mlp_norm"       // block (h): norm of the MLP's output, before the residual
	RoleRouter           Role = "router"              // moe part 0 (E, h), fp32; with a shared expert's gate (E+1, h)
	RoleRouterBias       Role = "router_bias"         // moe part 0 (E): of the router's product
	RoleChoiceBias       Role = "choice_bias"         // moe part 0 (E): decides with the scores which experts are chosen; never trained
	RoleExpertGateUp     Role = "expert_gate_up"      // moe part 1+e (2·F, h): gate, then up
	RoleExpertDown       Role = "expert_down"         // moe part 1+e (h, F)
	RoleExpertGateUpBias Role = "expert_gate_up_bias" // moe part 1+e (2·F)
	RoleExpertDownBias   Role = "expert_down_bias"    // moe part 1+e (h)
	// Of latent attention, in place of RoleQKV.
	RoleQA      Role = "q_a"       // block (QRank, h)
	RoleQABias  Role = "q_a_bias"  // block (QRank)
	RoleQANorm  Role = "q_a_norm"  // block (QRank)
	RoleQB      Role = "q_b"       // block (H·D, QRank), or (H·D, h) where there is no RoleQA
	RoleKVA     Role = "kv_a"      // block (KVRank+RopeDim, h)
	RoleKVABias Role = "kv_a_bias" // block (KVRank+RopeDim)
	RoleKVANorm Role = "kv_a_norm" // block (KVRank)
	RoleKVB     Role = "kv_b"      // block (H·(NopeDim+ValueDim), KVRank): of each head key, then value
	// Of a recurrence, in place of RoleQKV and RoleO.
	RoleRecurIn     Role = "recur_in"      // recurrent, mixer (2·K+2·V, h): q, k, v, z
	RoleRecurGates  Role = "recur_gates"   // (2·Heads, h): b, then a
	RoleRecurTaps   Role = "recur_taps"    // (2·K+V, 1, Taps), fp32: of the convolution of q, k and v
	RoleRecurDecay  Role = "recur_decay"   // (Heads): logarithms of rates of decay
	RoleRecurDtBias Role = "recur_dt_bias" // (Heads): added to a
	RoleRecurNorm   Role = "recur_norm"    // (ValueDim): of every head's output
	RoleRecurOut    Role = "recur_out"     // (h, V)
	// Roles by which a shared expert's tensors are named: its gate is the router's last row, and it
	// is part 1+E, with the roles of an expert.
	RoleSharedGate       Role = "shared_gate"
	RoleSharedGateUp     Role = "shared_gate_up"
	RoleSharedDown       Role = "shared_down"
	RoleSharedGateUpBias Role = "shared_gate_up_bias"
	RoleSharedDownBias   Role = "shared_down_bias"

	RoleFinalNorm     Role = "final_norm"      // head (h)
	RoleFinalNormBias Role = "final_norm_bias" // head (h)
	RoleLMHead        Role = "lm_head"         // head (V, h)
	RoleLMHeadBias    Role = "lm_head_bias"    // head (V)
)

// Stored is some rows of a parameter, which are one tensor in most checkpoints.
type Stored struct {
	Name  string // the tensor's, as in safetensors: "model.layers.0.self_attn.q_proj.weight"; no two are the same
	Row   int    // first row inside the parameter
	Rows  int    // rows it has there; a vector counts its elements as rows
	Place Place  // where the checkpoint has them, unless it is as a tensor of that name
	Group int    // the group that it is in, from 1, as SetGroups counts them; 0: none
}

// Param is one parameter as the engine holds it: dense, row-major, one or more
// tensors stacked by rows.
type Param struct {
	Role Role
	Rows int // a vector (Dims 1) has Rows elements and Cols 1
	Cols int
	Dims int // 1, 2, or 3 for (Rows, 1, Cols): decay and the streamed dtype depend on it
	// Stored are the tensors that it is made of, in the order of their rows.
	Stored []Stored
	// Part is which part of the layer it belongs to; see Layer.Parts.
	Part int
	// F32 says that it is streamed in fp32 even where others are streamed in bf16: a router,
	// for instance, whose choice of experts turns on small differences.
	F32 bool
	// SavedF32 says that it is saved in fp32 even where others are saved in bf16, because
	// Transformers keeps it so.
	SavedF32 bool
	// Frozen says that it is not trained: never, or because Config.Freeze says so.
	Frozen bool
}

// Elems is the number of elements of p.
func (p Param) Elems() int64 { return int64(p.Rows) * int64(p.Cols) }

// Decay says whether weight decay applies: to tensors of two or more
// dimensions, as Hugging Face's Trainer groups them (norms and biases apart).
func (p Param) Decay() bool { return p.Dims >= 2 }

// StoredShape is the shape of rows i of p.Stored, as a tensor of their own.
func (p Param) StoredShape(i int) []int64 {
	if p.Dims == 1 {
		return []int64{int64(p.Stored[i].Rows)}
	}
	if p.Dims == 3 {
		return []int64{int64(p.Stored[i].Rows), 1, int64(p.Cols)}
	}
	return []int64{int64(p.Stored[i].Rows), int64(p.Cols)}
}

// Layer is one streamed unit of a model.
type Layer struct {
	Index  int // place in Config.Layers: 0 is the embedding, the last the head
	Kind   LayerKind
	Block  int // which decoder block, for Block, Attention and MoE
	Params []Param
	// Tied says that the head's lm_head is the embedding's tensor. The head's own Params then
	// lack RoleLMHead (see TensorLayout.Ref).
	Tied bool
}

// Parts is how many tiles the layer streams in. For MoE it is one for the norm and the router
// and one for each expert, else 1. (A head is cut elsewhere, by rows.)
func (l Layer) Parts() int {
	if l.Kind != MoE {
		return 1
	}
	return 1 + l.Params[len(l.Params)-1].Part
}

// Elems is the number of parameters of the layer, a tied one not counted.
func (l Layer) Elems() int64 {
	var n int64
	for _, p := range l.Params {
		n += p.Elems()
	}
	return n
}
