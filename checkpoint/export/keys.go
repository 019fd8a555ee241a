package export

import (
	"cmp"
	"encoding/json"
	"fmt"

	"mt/checkpoint/gguf"
	"mt/model"
)

// plan is a GGUF file to be written: its keys and tensors, and the settings and model they come from.
type plan struct {
	s      *settings
	model  *model.Config // package model's reading of config.json; set after the common keys
	family *family
	out    Type
	kvs    []gguf.KV
	items  []item
	notes  []string
	narrow []string            // names of matrices whose rows are no multiple of a Q8_0 block
	scales map[string][]scaled // factors of rows, by the name of the GGUF tensor without its block; set by the family's modelled

	layers, heads, kvHeads, headDim int
	narrowed                        narrow // sizes of latent attention
	rope                            rope
}

// maxHeadDim bounds the size of a head in config.json. Some tables of this size are computed before the weights
// show whether it is right.
const maxHeadDim = 1 << 16

// add sets the GGUF key that consists of the architecture's name, a dot and key.
func (p *plan) add(key string, value any) {
	p.kvs = append(p.kvs, gguf.KV{Key: p.family.arch + "." + key, Value: value})
}

// set replaces the value of a key that add has set.
func (p *plan) set(key string, value any) {
	for i, kv := range p.kvs {
		if kv.Key == p.family.arch+"."+key {
			p.kvs[i].Value = value
		}
	}
}

// append adds value to the list under the key of this whole name.
func (p *plan) append(key string, value float32) {
	for i, kv := range p.kvs {
		if list, ok := kv.Value.([]float32); ok && kv.Key == key {
			p.kvs[i].Value = append(list, value)
			return
		}
	}
	p.kvs = append(p.kvs, gguf.KV{Key: key, Value: []float32{value}})
}

func (p *plan) note(text string) { p.notes = append(p.notes, text) }

// fileTypes are the values of general.file_type, the type of most tensors.
var fileTypes = map[Type]uint32{F32: 0, F16: 1, Q8: 7, BF16: 32}

// general sets the first keys, general.*, of every file. name is the model's name.
func (p *plan) general(name string) {
	p.kvs = append(p.kvs,
		gguf.KV{Key: "general.architecture", Value: p.family.arch},
		gguf.KV{Key: "general.type", Value: "model"},
		gguf.KV{Key: "general.name", Value: name},
		gguf.KV{Key: "general.file_type", Value: fileTypes[p.out]},
		gguf.KV{Key: "general.quantization_version", Value: uint32(2)})
}

// common sets the keys that all families share, then the family's own keys.
func (p *plan) common() error {
	s := p.s
	p.layers, p.heads = s.need("num_hidden_layers"), s.need("num_attention_heads")
	p.kvHeads = s.int("num_key_value_heads", p.heads)
	hidden := s.need("hidden_size")
	p.headDim = s.int("head_dim", hidden/p.heads)
	if p.family.mla {
		p.mlaSizes()
	}
	if s.err == nil && (p.headDim == 0 || p.headDim > maxHeadDim || p.headDim%2 != 0 || p.kvHeads == 0 || p.heads%p.kvHeads != 0) {
		s.fail("num_attention_heads", "%d heads, %d of keys, of %d elements: impossible", p.heads, p.kvHeads, p.headDim)
	}
	p.add("vocab_size", uint32(s.need("vocab_size"))) // for files without a vocabulary
	p.add("block_count", uint32(p.layers))
	p.add("context_length", uint32(s.int("max_position_embeddings", 2048)))
	p.add("embedding_length", uint32(hidden))
	if p.family.noRope && s.vals["intermediate_size"] == nil {
		s.vals["intermediate_size"] = json.Number(itoa(4 * hidden)) // GPT-2's n_inner may be null
	}
	p.add("feed_forward_length", uint32(s.need(cmp.Or(p.family.width, "intermediate_size"))))
	p.add("attention.head_count", uint32(p.heads))
	p.add("attention.head_count_kv", uint32(p.kvHeads))
	p.headLengths()
	p.add(p.family.epsilon(), float32(s.num("rms_norm_eps", 1e-6)))
	if !p.family.noRope {
		p.rope = s.readRope()
		p.rope.kind = cmp.Or(p.family.ropeTypes[p.rope.kind], p.rope.kind)
		p.ropeKeys()
	}
	for _, f := range p.family.keys {
		f(p)
	}
	return s.err
}

// epsilon returns the GGUF key of the norms' epsilon.
func (f *family) epsilon() string {
	if f.layerNorm {
		return "attention.layer_norm_epsilon"
	}
	return "attention.layer_norm_rms_epsilon"
}

// parallel writes whether attention and MLP both read the block's input (use_parallel_residual), instead of one
// after the other.
func (p *plan) parallel() {
	p.add("use_parallel_residual", p.s.bool("use_parallel_residual", true))
}

// activation checks that llama.cpp computes the model's activation in the MLP; the architecture decides it. For
// GELU with erf llama.cpp uses the tanh form, which becomes a note.
func (p *plan) activation() {
	switch act := p.model.Activation; {
	case act == p.family.act:
	case act == model.GELU && p.family.act == model.GELUTanh:
		p.note("llama.cpp computes this architecture's GELU with tanh in place of erf: results differ by some 1e-3")
	default:
		p.s.fail(cmp.Or(p.family.names["hidden_act"], "hidden_act"), "%v, but llama.cpp's %s computes another function in the MLP: the model would be another",
			p.s.vals["hidden_act"], p.family.arch)
	}
}

// expertCount returns the number of experts that a block chooses from.
func (p *plan) expertCount() int {
	s := p.s
	return s.int("num_experts", s.int("num_local_experts", s.int("n_routed_experts", 0)))
}

// expertCounts sets the keys of every mixture of experts.
func (p *plan) expertCounts() {
	count := p.expertCount()
	if count == 0 {
		p.s.fail("num_experts", "missing or 0")
	}
	p.add("expert_count", uint32(count))
	p.add("expert_used_count", uint32(p.s.need("num_experts_per_tok")))
}

// everywhere sets the keys of models with experts in every layer. normalised says whether llama.cpp's code for the
// architecture normalises the weights of the chosen experts. everywhere refuses a model whose norm_topk_prob says
// otherwise.
func (p *plan) everywhere(normalised bool) {
	s := p.s
	if is := s.bool("norm_topk_prob", false); is != normalised {
		always := "always"
		if is {
			always = "never"
		}
		s.fail("norm_topk_prob", "is %t, but llama.cpp's %s %s normalises the weights of the chosen experts: the model would be another", is, p.family.arch, always)
	}
	if only, _ := s.vals["mlp_only_layers"].([]any); len(only) > 0 || s.int("decoder_sparse_step", 1) != 1 {
		s.fail("decoder_sparse_step", "layers without experts (here or in mlp_only_layers) cannot be written: llama.cpp's %s has experts in every layer", p.family.arch)
	}
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(s.need("moe_intermediate_size")))
}

func (p *plan) normalisedExperts() { p.everywhere(true) }

// expertsAndShared sets the keys of models with experts in every layer, among them one shared expert that every
// token uses. The weights of the chosen experts are not normalised.
func (p *plan) expertsAndShared() {
	p.everywhere(false)
	p.add("expert_shared_feed_forward_length", uint32(p.s.need("shared_expert_intermediate_size")))
}

// sigmoidExperts sets the keys of experts whose scores are sigmoids. Every token uses some shared experts too, and
// the first blocks have a dense MLP.
func (p *plan) sigmoidExperts() {
	const sigmoid = 2 // gguf.ExpertGatingFuncType
	s := p.s
	if open, all := s.int("topk_group", 1), s.int("n_group", 1); open < all {
		s.fail("topk_group", "%d of %d groups of experts are open: llama.cpp's %s has no groups", open, all, p.family.arch)
	}
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(s.need("moe_intermediate_size")))
	p.add("expert_shared_count", uint32(s.int("n_shared_experts", 0)))
	p.add("expert_gating_func", uint32(sigmoid))
	p.add("expert_weights_scale", float32(s.num("routed_scaling_factor", 1)))
	p.add("expert_weights_norm", s.bool("norm_topk_prob", true))
	p.add("leading_dense_block_count", uint32(s.int("first_k_dense_replace", 0)))
}

// afmoeKeys sets the keys of AFMoE. It refuses models that differ from what llama.cpp assumes: the scale of the
// embeddings, and the layers with a sliding window.
func (p *plan) afmoeKeys() {
	s := p.s
	if !s.bool("mup_enabled", false) {
		s.fail("mup_enabled", "false, but llama.cpp's %s always multiplies embeddings by the root of hidden_size", p.family.arch)
	}
	if n := s.int("global_attn_every_n_layers", 4); n != 4 && s.vals["layer_types"] == nil {
		s.fail("global_attn_every_n_layers", "%d, but llama.cpp's %s has full attention in each fourth layer and no other", n, p.family.arch)
	}
	p.windowInFour()
	p.sigmoidExperts()
}

// ossKeys sets the keys of gpt-oss. It refuses models that differ from what llama.cpp assumes: the layers with a
// sliding window, and the clamping of the gate.
func (p *plan) ossKeys() {
	s := p.s
	p.add("attention.sliding_window", uint32(s.need("sliding_window")))
	for i, kind := range s.layerTypes() {
		if (kind == "sliding_attention") != (i%2 == 0) {
			s.fail("layer_types", "layer %d is %q, but llama.cpp's %s has a sliding window in every other layer from the first on", i, kind, p.family.arch)
		}
	}
	for key, always := range map[string]float64{"swiglu_alpha": 1.702, "swiglu_limit": 7} {
		if v := s.num(key, always); v != always {
			s.fail(key, "%g, but llama.cpp takes it to be %g: the model would be another", v, always)
		}
	}
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(s.need("intermediate_size")))
}

// windowIgnored writes the sliding window, if the model has one, and notes that llama.cpp ignores it in this
// architecture.
func (p *plan) windowIgnored() {
	if w := p.s.int("sliding_window", 0); w > 0 {
		p.add("attention.sliding_window", uint32(w))
		p.noteWindow(w)
	}
}

func (p *plan) noteWindow(w int) {
	p.note("llama.cpp attends to everything where this model has a sliding window: results are the same up to " + itoa(w) + " tokens")
}

// windowUnused is for families whose sliding window is off unless use_sliding_window is set. If it is on, a note
// says that llama.cpp ignores it.
func (p *plan) windowUnused() {
	s := p.s
	if w := s.int("sliding_window", 0); w > 0 && s.bool("use_sliding_window", false) {
		p.noteWindow(w)
	}
}

// sections returns a function that writes mrope_section, a key of the multimodal rotary embedding.
// In this embedding a token has three positions: time, and row and column in an image. The three
// sections say how many rotary pairs of a head each position rotates. In text all three positions
// are equal. usual is the value if the config lacks the key.
func sections(usual ...int32) func(p *plan) {
	return func(p *plan) {
		of := append([]int32{}, usual...)
		if list, ok := p.rope.params.vals["mrope_section"].([]any); ok {
			of = of[:0]
			for _, v := range list {
				x, _ := number(v)
				of = append(of, int32(x))
			}
		}
		var sum int32
		for _, n := range of {
			sum += n
		}
		if rotary := p.rotary(); len(of) != 3 || int(sum) != rotary/2 {
			p.s.fail("mrope_section", "%v are not three numbers whose sum is half of a head's %d elements", of, rotary)
		}
		p.add("rope.dimension_sections", append(of, 0)) // llama.cpp has a fourth position, which is 0 in text
		if still := p.still(of); len(still) > 0 && p.s.err == nil {
			p.note(fmt.Sprintf("llama.cpp does not turn pairs %v of a head's elements, which in this model turn with the time: they turn slowly, and "+
				"results differ in long texts", still))
		}
	}
}

// still returns the rotary pairs of a head that llama.cpp's Qwen3-VL architectures would not rotate at all,
// although the model does. In llama.cpp, position p (0, 1 or 2) rotates only the pairs 3i+p with i below its
// section. In the model, the time position rotates all remaining pairs.
func (p *plan) still(sections []int32) []int {
	var out []int
	if p.family.arch == "qwen2vl" {
		return nil
	}
	for i := range p.rotary() / 2 {
		if i >= 3*int(sections[i%3]) {
			out = append(out, i)
		}
	}
	return out
}

// deepstack sets the number of layers, from the first on, that receive features of the vision tower. Only images
// have such features, but the key belongs to the architecture.
func (p *plan) deepstack() {
	at, _ := p.s.object("vision_config")["deepstack_visual_indexes"].([]any)
	p.add("n_deepstack_layers", uint32(len(at)))
}

// queryScaling sets llama_4_scaling_beta, by which queries are scaled up at late positions: more for each further
// multiple of yarn's original context length. So it is an error without yarn.
func (p *plan) queryScaling() {
	r := p.rope
	if scale := r.params.num("llama_4_scaling_beta", 0); scale > 0 {
		if r.kind != "yarn" {
			p.s.fail("llama_4_scaling_beta", "%g, without yarn: llama.cpp's %s knows the length of a stretch from yarn's", scale, p.family.arch)
		}
		p.add("attention.temperature_scale", float32(scale))
	}
}

// windowInFour sets the sliding window. It refuses a model that does not have full attention in exactly every
// fourth layer, as llama.cpp's architecture does.
func (p *plan) windowInFour() {
	s := p.s
	for i, t := range s.layerTypes() {
		if full := (i+1)%4 == 0; full != (t == "full_attention") {
			s.fail("layer_types", "layer %d is %s: llama.cpp's %s has full attention in each fourth layer and no other", i, t, p.family.arch)
		}
	}
	p.add("attention.sliding_window", uint32(s.need("sliding_window")))
	if p.rope.local > 0 && p.rope.local != p.rope.theta {
		s.fail("rope_parameters", "rope_theta is %g in sliding_attention and %g in full_attention, but llama.cpp's %s has one for both", p.rope.local, p.rope.theta, p.family.arch)
	}
}

// exaoneWindow sets the sliding window. llama.cpp's exaone4 has a window, and layers without a rotary embedding,
// only in models with 64 layers.
func (p *plan) exaoneWindow() {
	s := p.s
	w := s.int("sliding_window", 0)
	switch {
	case w == 0:
		return
	case p.layers != 64:
		s.fail("sliding_window", "%d, but llama.cpp's %s has one in models of 64 layers alone: the model would be another", w, p.family.arch)
	}
	period := 4
	if types := s.layerTypes(); len(types) > 0 {
		period = p.period(types)
	}
	p.add("attention.sliding_window", uint32(w))
	p.add("attention.sliding_window_pattern", uint32(period))
}

// noBias returns an error, through p.s, if the model has biases. It is called for architectures
// that have none in llama.cpp. Keys that the family lacks need no check, since package model
// already refuses them.
func (p *plan) noBias() { noBiasIn("use_bias", "attention_bias", "mlp_bias")(p) }

// noBiasIn returns a function that refuses a model if one of the keys says that the model has biases.
func noBiasIn(keys ...string) func(*plan) {
	return func(p *plan) {
		for _, key := range keys {
			if p.s.bool(key, false) {
				p.s.fail(key, "is true, but llama.cpp's %s has no biases: it would not load the file", p.family.arch)
			}
		}
	}
}

// turnsInFour returns an error, through p.s, unless exactly layers 3, 7, 11, … have no rotary
// embedding, as llama.cpp assumes.
func (p *plan) turnsInFour() {
	turns, _ := p.s.vals["no_rope_layers"].([]any)
	if len(turns) == 0 && p.s.int("no_rope_layer_interval", 4) != 4 {
		p.s.fail("no_rope_layer_interval", "is not 4: llama.cpp's %s has layers without a rotary embedding in each fourth place and no other", p.family.arch)
	}
	for i, v := range turns {
		if x, _ := number(v); i < p.layers && (x == 0) != ((i+1)%4 == 0) {
			p.s.fail("no_rope_layers", "layer %d has %v: llama.cpp's %s has layers without a rotary embedding in each fourth place and no other", i, v, p.family.arch)
		}
	}
}

// cohereAttention sets the keys of cohere2: sliding windows and the scale of the logits. It refuses biases.
func (p *plan) cohereAttention() {
	if n := p.s.int("sliding_window_pattern", 4); n != 4 && p.s.vals["layer_types"] == nil {
		p.s.fail("sliding_window_pattern", "is %d: llama.cpp's %s has full attention in each fourth layer and no other", n, p.family.arch)
	}
	p.windowInFour()
	p.add("logit_scale", float32(p.s.num("logit_scale", 0.0625)))
	p.noBias()
}

// multipliers sets the four scale factors of Granite: of embedding, residual branches, attention scores and logits.
func (p *plan) multipliers() {
	for _, m := range []struct{ from, to string }{{"embedding_multiplier", "embedding_scale"}, {"residual_multiplier", "residual_scale"},
		{"attention_multiplier", "attention.scale"}, {"logits_scaling", "logit_scale"}} {
		p.add(m.to, float32(p.s.num(m.from, 1)))
	}
}

// turnsIfAsked writes whether a Granite 4 model has a rotary embedding. llama.cpp's architecture
// granite reads this from rope.scaling.finetuned, a key that means something else in other
// architectures.
func (p *plan) turnsIfAsked() {
	p.add("rope.scaling.finetuned", p.s.str("position_embedding_type") == "rope")
}

// attentionAndMLP refuses models with experts, or with layers of another kind than attention, such as Mamba.
func (p *plan) attentionAndMLP() {
	if n := p.s.int("num_local_experts", 8); n > 0 {
		p.s.fail("num_local_experts", "%d: mt writes %s without experts only", n, p.family.arch)
	}
	for b, t := range p.s.layerTypes() {
		if t != "attention" && t != "full_attention" {
			p.s.fail("layer_types", "layer %d is %q: mt writes %s with attention in all layers only", b, t, p.family.arch)
		}
	}
}

// windowOrZero writes the sliding window. llama.cpp's phi3 requires the key but ignores its value.
func (p *plan) windowOrZero() {
	w := p.s.int("sliding_window", 0)
	p.add("attention.sliding_window", uint32(w))
	if w > 0 {
		p.noteWindow(w)
	}
}

// period returns n if layers n−1, 2n−1, … and no others have full attention. types is the kind of
// each layer. If no layer has full attention, n is one more than the number of layers. Any other
// arrangement of layers is an error of p.s.
func (p *plan) period(types []string) int {
	n := 0
	for i, t := range types {
		if t == "full_attention" && n == 0 {
			n = i + 1
		}
		if full := n > 0 && (i+1)%n == 0; full != (t == "full_attention") {
			p.s.fail("layer_types", "layer %d is %s: llama.cpp's %s has full attention in each nth layer only", i, t, p.family.arch)
			return 0
		}
	}
	if n == 0 { // only sliding windows: the first full layer would follow the last
		return len(types) + 1
	}
	return n
}
