package model

// LayerKind is the kind of a layer, such as block, experts or head.
type LayerKind uint8

// The layer kinds, in the order they appear in a model.
const (
	Embedding  LayerKind = iota
	Positions            // learned positions, which are added to the embedding
	PerLayer             // per-layer inputs of blocks
	Block                // a decoder block with a dense MLP
	Attention            // the first half of a decoder block with experts
	MoE                  // its second half: norm, router and experts
	MLP                  // a block that is a dense MLP alone
	Recurrent            // a decoder block with a recurrence and a dense MLP
	Mixer                // the first half of a block with a recurrence and experts
	AheadInput           // final norm, and the input of the block for multi-token prediction
	AheadNorm            // the norm of that block's output
	Head
)

func (k LayerKind) String() string {
	return [...]string{"embedding", "positions", "per_layer", "block", "attention", "moe", "mlp", "recurrent", "mixer", "ahead_input", "ahead_norm", "head"}[k]
}

// BeginsBlock says whether a layer of the kind is a decoder block without experts or a block's first half.
func (k LayerKind) BeginsBlock() bool {
	return k == Block || k == Attention || k == MLP || k == Recurrent || k == Mixer
}

// Role names the purpose of a parameter in its layer.
type Role string

// The roles of all families. Each comment has the layer kind or kinds with the role, and the shape.
// A fused role stacks several matrices by rows, so one matrix product serves all of them. An
// Attention layer has a block's roles up to RolePostAttnNorm.
const (
	RoleEmbed        Role = "embed"          // embedding (V, h)
	RoleAttnNorm     Role = "attn_norm"      // block (h)
	RoleQKV          Role = "qkv"            // block ((H+2·KV)·D, h): q, k, v; with an output gate H·D more rows at the end; with KeysAreValues no v, with SharedKV q alone
	RoleQKVBias      Role = "qkv_bias"       // block ((H+2·KV)·D)
	RoleQNorm        Role = "q_norm"         // block (D) or, with QKNormWhole, (H·D)
	RoleKNorm        Role = "k_norm"         // block (D) or (KV·D)
	RolePositions    Role = "positions"      // positions (P, h)
	RoleAttnNormBias Role = "attn_norm_bias" // block (h)
	RoleMLPNormBias  Role = "mlp_norm_bias"  // block, moe part 0 (h)
	RoleUp           Role = "up"             // block (F, h), in place of gate_up
	RoleUpBias       Role = "up_bias"        // block (F)
	RoleXIELU        Role = "xielu"          // block (2): the activation's parameters, for inputs above and below 0
	RoleSinks        Role = "sinks"          // block (H)
	RoleO            Role = "o"              // block (h, H·D)
	RoleOBias        Role = "o_bias"         // block (h)
	RolePostAttnNorm Role = "post_attn_norm" // block (h): norm of attention's output, before the residual
	RoleMLPNorm      Role = "mlp_norm"       // block, moe part 0 (h)
	RoleGateUp       Role = "gate_up"        // block (2·F, h): gate, then up
	RoleGateUpBias   Role = "gate_up_bias"   // block (2·F)
	RoleDown         Role = "down"           // block (h, F)
	RoleDownBias     Role = "down_bias"      // block (h)
	RolePostMLPNorm  Role = "post_mlp_norm"  // block, moe part 0 (h): norm of the output of the MLP or of the experts, before the residual
	// Per-layer inputs: a block's part, then the layer's.
	RolePerLayerGate     Role = "per_layer_gate"      // block (P, h)
	RolePerLayerOut      Role = "per_layer_out"       // block (h, P)
	RolePerLayerPostNorm Role = "per_layer_post_norm" // block (h)
	RolePerLayerTable    Role = "per_layer_table"     // per_layer (V, L·P)
	RolePerLayerProj     Role = "per_layer_proj"      // per_layer (L·P, h)
	RolePerLayerNorm     Role = "per_layer_norm"      // per_layer (P)

	RoleLayerScalar Role = "layer_scalar" // block (1): multiplies the block's output; never trained
	RoleRouter      Role = "router"       // moe part 0 (E, h), fp32; with a shared expert's gate (E+1, h)
	RoleRouterBias  Role = "router_bias"  // moe part 0 (E): the router's bias
	RoleChoiceBias  Role = "choice_bias"  // moe part 0 (E): added to scores for the choice of experts alone; never trained
	// Beside a dense MLP, whose roles are those of a dense block, also in part 0:
	RoleRouterNorm       Role = "router_norm"         // moe part 0 (h): norm of the router's input
	RoleExpertScales     Role = "expert_scales"       // moe part 0 (E): factors on the weights of experts
	RoleExpertNorm       Role = "expert_norm"         // moe part 0 (h): norm of the experts' input
	RolePostDenseNorm    Role = "post_dense_norm"     // moe part 0 (h): norm of the dense MLP's output
	RolePostExpertNorm   Role = "post_expert_norm"    // moe part 0 (h): norm of the experts' output
	RoleExpertGateUp     Role = "expert_gate_up"      // moe part 1+e (2·F, h): gate, then up; without a gate (F, h)
	RoleExpertDown       Role = "expert_down"         // moe part 1+e (h, F)
	RoleExpertGateUpBias Role = "expert_gate_up_bias" // moe part 1+e (2·F)
	RoleExpertDownBias   Role = "expert_down_bias"    // moe part 1+e (h)
	// Roles of multi-head latent attention (MLA), which replace RoleQKV.
	RoleQA      Role = "q_a"       // block (QRank, h)
	RoleQABias  Role = "q_a_bias"  // block (QRank)
	RoleQANorm  Role = "q_a_norm"  // block (QRank)
	RoleQB      Role = "q_b"       // block (H·D, QRank); without RoleQA (H·D, h)
	RoleKVA     Role = "kv_a"      // block (KVRank+RopeDim, h)
	RoleKVABias Role = "kv_a_bias" // block (KVRank+RopeDim)
	RoleKVANorm Role = "kv_a_norm" // block (KVRank)
	RoleKVB     Role = "kv_b"      // block (H·(NopeDim+ValueDim), KVRank): per head key, then value
	// Roles of the indexer of sparse attention, with I heads of X elements. The choice of keys has no gradient, so they are
	// never trained.
	RoleIndexQ         Role = "index_q"           // block (I·X, QRank)
	RoleIndexK         Role = "index_k"           // block (X, h)
	RoleIndexKNorm     Role = "index_k_norm"      // block (X)
	RoleIndexKNormBias Role = "index_k_norm_bias" // block (X)
	RoleIndexWeights   Role = "index_weights"     // block (I, h)
	// Roles of a recurrence, which replace RoleQKV and RoleO. Shapes are for a gated delta net,
	// with K columns of all keys and V of all values. RoleRecurIn has 3·h rows (b, c, x) in a gated
	// short convolution, and z, x, b, c and a step per head in Mamba-2.
	RoleRecurIn       Role = "recur_in"        // recurrent, mixer (2·K+2·V, h): q, k, v, z
	RoleRecurInBias   Role = "recur_in_bias"   // one element per row of RoleRecurIn
	RoleRecurGates    Role = "recur_gates"     // (2·Heads, h): b, then a
	RoleRecurDecayB   Role = "recur_decay_b"   // KDA (Heads·Dim, Dim): decays from their narrow vector
	RoleRecurGateB    Role = "recur_gate_b"    // KDA (Heads·Dim, Dim): the output's gate from its narrow vector
	RoleRecurTaps     Role = "recur_taps"      // (2·K+V, 1, Taps), fp32: the convolution of q, k and v
	RoleRecurTapsBias Role = "recur_taps_bias" // one element per row of RoleRecurTaps
	RoleRecurDecay    Role = "recur_decay"     // (Heads): logarithms of the decay rates
	RoleRecurDtBias   Role = "recur_dt_bias"   // (Heads): added to a
	RoleRecurSkip     Role = "recur_skip"      // (Heads): Mamba-2's factor from x to the output
	RoleRecurNorm     Role = "recur_norm"      // (ValueDim): the norm of every head's output; of Mamba-2 (Inner)
	RoleRecurOut      Role = "recur_out"       // (h, V)
	RoleRecurOutBias  Role = "recur_out_bias"  // (h)
	// Roles that only name a shared expert's tensors. No parameter has them: the shared expert is
	// part 1+E of the MoE layer and has an expert's roles, and its gate is the router's last row.
	RoleSharedGate       Role = "shared_gate"
	RoleSharedGateUp     Role = "shared_gate_up"
	RoleSharedDown       Role = "shared_down"
	RoleSharedGateUpBias Role = "shared_gate_up_bias"
	RoleSharedDownBias   Role = "shared_down_bias"

	// Roles of multi-token prediction. The layer ahead_input has the final norm too, and the head then has none.
	RoleAheadEmbedNorm  Role = "ahead_embed_norm"  // ahead_input (h): norm of the next token's embedding
	RoleAheadHiddenNorm Role = "ahead_hidden_norm" // ahead_input (h): norm of the final norm's output
	RoleAheadProj       Role = "ahead_proj"        // ahead_input (h, 2·h): columns of the embedding, then of the hidden state
	RoleAheadNorm       Role = "ahead_norm"        // ahead_norm (h)

	RoleFinalNorm     Role = "final_norm"      // head (h)
	RoleFinalNormBias Role = "final_norm_bias" // head (h)
	RoleLMHead        Role = "lm_head"         // head (V, h)
	RoleLMHeadBias    Role = "lm_head_bias"    // head (V)
)

// Stored is a range of a parameter's rows with a name of its own. In most checkpoints it is one
// tensor.
type Stored struct {
	Name  string // the tensor's unique name, as in safetensors: "model.layers.0.self_attn.q_proj.weight"
	Row   int    // first row inside the parameter
	Rows  int    // number of rows; a vector counts its elements as rows
	Place Place  // where the checkpoint keeps the rows; zero: as the tensor Name
	Group int    // the number of the tensor's group as SetGroups counts them, from 1; 0: none
}

// Param is one parameter as the program holds it: dense, row-major, one or more tensors stacked by rows.
type Param struct {
	Role Role
	Rows int // a vector (Dims 1) has Rows elements and Cols 1
	Cols int
	Dims int // 1, 2, or 3 for (Rows, 1, Cols); weight decay and the streamed dtype depend on it
	// Stored has the names of the parameter's tensors, in the order of their rows.
	Stored []Stored
	// Repeated has the names of tensors with which directories may repeat the whole parameter, for a module that shares it.
	Repeated []string
	// Part is the number of the layer's part that has the parameter: in a MoE layer 0 for the
	// router, 1+e for expert e. In other layers it is 0.
	Part int
	// F32 streams the parameter in fp32 even if others stream in bf16. A router needs this: its choice of experts
	// depends on small differences.
	F32 bool
	// SavedF32 saves the parameter in fp32 even if others are saved in bf16, because Transformers keeps it so.
	SavedF32 bool
	// Frozen says that the parameter is not trained, because the architecture never trains it or
	// because of Config.Freeze.
	Frozen bool
}

// Elems returns the number of elements of p.
func (p Param) Elems() int64 { return int64(p.Rows) * int64(p.Cols) }

// Decay says whether weight decay applies to p: it applies to tensors of two or more dimensions, not to norms and
// biases. Hugging Face's Trainer groups them so.
func (p Param) Decay() bool { return p.Dims >= 2 }

// StoredShape returns the shape of p.Stored[i] as a tensor of its own.
func (p Param) StoredShape(i int) []int64 {
	if p.Dims == 1 {
		return []int64{int64(p.Stored[i].Rows)}
	}
	if p.Dims == 4 {
		return []int64{1, 1, int64(p.Stored[i].Rows), 1}
	}
	if p.Dims == 3 {
		return []int64{int64(p.Stored[i].Rows), 1, int64(p.Cols)}
	}
	return []int64{int64(p.Stored[i].Rows), int64(p.Cols)}
}

// Layer is one layer of a model, the unit that streams.
type Layer struct {
	Index  int // index in Config.Layers: 0 is the embedding, the last the head
	Kind   LayerKind
	Block  int // index of the decoder block, if the layer is a block or half of a block
	Params []Param
	// Tied says that the head shares the embedding's tensor. Params then lack RoleLMHead (see TensorLayout.Ref).
	Tied bool
}

// Parts returns the number of parts of the layer. A MoE layer has one part for norm and router and one per expert; any
// other layer has one part. A head in parts is cut by rows, in package layers.
func (l Layer) Parts() int {
	if l.Kind != MoE {
		return 1
	}
	return 1 + l.Params[len(l.Params)-1].Part
}

// Elems returns the number of parameters of the layer without a tied tensor.
func (l Layer) Elems() int64 {
	var n int64
	for _, p := range l.Params {
		n += p.Elems()
	}
	return n
}
