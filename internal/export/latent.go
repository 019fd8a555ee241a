package export

import (
	"fmt"
	"io"
	"slices"

	"mt/checkpoint/gguf"
)

// This file is of latent attention, llama.cpp's deepseek2: keys and values are one narrow vector for all heads, which
// the file has as one head that is as wide as the vector and the part that turns.

// narrow are the sizes of latent attention.
type narrow struct{ rank, nope, rope, value int64 }

// latentSizes reads them; what the file calls heads follows.
func (p *plan) latentSizes() {
	s := p.s
	p.narrowed = narrow{rank: int64(s.need("kv_lora_rank")), nope: int64(s.need("qk_nope_head_dim")), rope: int64(s.need("qk_rope_head_dim")), value: int64(s.need("v_head_dim"))}
	p.headDim, p.kvHeads = int(p.narrowed.rope), 1
}

// headLengths sets how long keys and values are.
func (p *plan) headLengths() {
	key, value := p.headDim, p.headDim
	if n := p.narrowed; p.family.latent {
		key, value = int(n.rank+n.rope), int(n.rank)
		p.add("attention.key_length_mla", uint32(n.nope+n.rope))
		p.add("attention.value_length_mla", uint32(n.value))
		p.add("attention.kv_lora_rank", uint32(n.rank))
		p.add("attention.q_lora_rank", uint32(p.s.int("q_lora_rank", 0))) // 0, for queries of the hidden state, must be said but for 27 layers
	}
	p.add("attention.key_length", uint32(key))
	p.add("attention.value_length", uint32(value))
}

// latentAttention are the rules of a block's attention, whose queries are made of a narrow vector or not.
func (p *plan) latentAttention() []rule {
	queries := []rule{{"self_attn.q_proj", "attn_q", copied}}
	if p.model.Latent.QRank > 0 {
		queries = []rule{
			{"self_attn.q_a_proj", "attn_q_a", copied},
			{"self_attn.q_a_layernorm", "attn_q_a_norm", norm},
			{"self_attn.q_b_proj", "attn_q_b", copied},
		}
	}
	return slices.Concat([]rule{{"input_layernorm", "attn_norm", norm}}, queries, []rule{
		{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", copied},
		{"self_attn.kv_a_layernorm", "attn_kv_a_norm", norm},
		{"self_attn.kv_b_proj", "attn_k_b", keysOfHeads},
		{"self_attn.kv_b_proj", "attn_v_b", valuesOfHeads},
		{"self_attn.o_proj", "attn_output", copied},
	})
}

// deepseekExperts are the experts that every block has but the first ones.
func deepseekExperts(more ...rule) []rule {
	return slices.Concat([]rule{{"post_attention_layernorm", "ffn_norm", norm}, {"mlp.gate", "ffn_gate_inp", router}}, more,
		expertMatrices, sharedExpert("mlp.shared_experts"))
}

// deepseekKeys are those of attention and of experts, whose scores are gated so.
func (p *plan) deepseekKeys(gating uint32) {
	s := p.s
	p.noBias()
	if eps := s.num("rms_norm_eps", 1e-6); eps != 1e-6 { // transformers.DeepseekV3RMSNorm, which narrow vectors go through
		p.note(fmt.Sprintf("llama.cpp norms the narrow vectors of attention with rms_norm_eps %g too, this model with 1e-06: results differ a little", eps))
	}
	p.add("rope.dimension_count", uint32(p.narrowed.rope))
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(s.need("moe_intermediate_size")))
	p.add("expert_shared_count", uint32(s.int("n_shared_experts", 0)))
	p.add("expert_gating_func", gating)
	p.add("expert_weights_scale", float32(s.num("routed_scaling_factor", 1)))
	p.add("leading_dense_block_count", uint32(s.int("first_k_dense_replace", 0)))
}

// deepseek2Keys: scores are a softmax of all logits. Of groups of experts llama.cpp has V3's alone.
func (p *plan) deepseek2Keys() {
	const softmax = 1 // gguf.ExpertGatingFuncType
	p.deepseekKeys(softmax)
	if m := p.s.str("topk_method"); m != "" && m != "greedy" {
		p.s.fail("topk_method", "%q: a group of experts is worth its best one, and in llama.cpp's %s its best two: the model would be another", m, p.family.arch)
	}
}

// deepseek3Keys: scores are sigmoids, and experts are chosen from the groups whose best two have the largest sums.
func (p *plan) deepseek3Keys() {
	const sigmoid = 2
	s := p.s
	p.deepseekKeys(sigmoid)
	p.add("expert_weights_norm", s.bool("norm_topk_prob", true))
	if open, all := s.int("topk_group", 1), s.int("n_group", 1); open < all {
		p.add("expert_group_count", uint32(all))
		p.add("expert_group_used_count", uint32(open))
	}
	if !s.bool("rope_interleave", true) {
		s.fail("rope_interleave", "is false, but llama.cpp's %s turns neighbours: the model would be another", p.family.arch)
	}
}

// latentYarn sets the temperature of yarn's scaling. llama.cpp's deepseek2 takes it for both of the factors that a model may
// have, of the scores and of what turns, whose quotient is then 1.
func (p *plan) latentYarn(m, all float64) {
	if m != all || m == 0 {
		p.s.fail("mscale", "is %g and mscale_all_dim %g, but llama.cpp's %s has one number for both: the model would be another", m, all, p.family.arch)
	}
	p.add("rope.scaling.yarn_log_multiplier", float32(0.1*all))
}

// headRows are rows of each head of a tensor: n of its each, from number from on. turned: as (columns, rows).
type headRows struct {
	each, from, n int64
	turned        bool
}

// ofHeads plans the rows of keys, turned, or those of values of a product that makes both, as (heads, rows, columns).
func (p *plan) ofHeads(f *finder, r rule) error {
	t, ok := f.find(r.from + ".weight")
	if !ok {
		return f.missing(r.from + ".weight")
	}
	n, heads := p.narrowed, int64(p.heads)
	it := item{Tensor: gguf.Tensor{Name: r.to + ".weight"}, parts: []part{t}}
	if it.rows = (headRows{each: n.nope + n.value, n: n.nope, turned: true}); r.how == valuesOfHeads {
		it.rows = headRows{each: n.nope + n.value, from: n.nope, n: n.value}
	}
	if it.Shape = []int64{heads, it.rows.n, n.rank}; it.rows.turned {
		it.Shape = []int64{heads, n.rank, it.rows.n}
	}
	p.take(it, r.how)
	return nil
}

// headRows writes the item's rows, one head after the other.
func (j *writing) headRows(w io.Writer, it item) error {
	rows, t := it.rows, it.parts[0]
	cols := t.shape[1]
	for h := range t.shape[0] / rows.each {
		j.values = sized(j.values, rows.n*cols)
		if err := j.weights.Read(t.name, (h*rows.each+rows.from)*cols, j.values); err != nil {
			return err
		}
		values := j.values
		if rows.turned {
			j.turned = sized(j.turned, rows.n*cols)
			for i, v := range values {
				j.turned[int64(i)%cols*rows.n+int64(i)/cols] = v
			}
			values = j.turned
		}
		if err := j.chunk(w, it, values); err != nil {
			return err
		}
	}
	return nil
}
