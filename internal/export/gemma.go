package export

import "slices"

// gemmaBlock is a block whose sublayers have a norm before and a norm behind them; within are the norms in its attention.
func gemmaBlock(within ...rule) []rule {
	return slices.Concat(attention, within, []rule{
		{"post_attention_layernorm", "post_attention_norm", norm},
		{"pre_feedforward_layernorm", "ffn_norm", norm},
		{"mlp.gate_proj", "ffn_gate", copied},
		{"mlp.up_proj", "ffn_up", copied},
		{"mlp.down_proj", "ffn_down", copied},
		{"post_feedforward_layernorm", "post_ffw_norm", norm},
	})
}

// gemma2Keys are Gemma 2's. llama.cpp caps scores and logits of every model.
func (p *plan) gemma2Keys() {
	s := p.s
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		c := s.num(key, 0)
		if c == 0 {
			s.fail(key, "null or 0, but llama.cpp's %s has no models without this cap", p.family.arch)
		}
		p.add(key, float32(c))
	}
	period := p.fullEach(2)
	switch period {
	case 1:
		s.fail("layer_types", "no layer has a sliding window, but llama.cpp's %s has no models without: it would abort", p.family.arch)
	case 2: // as published models are
	default:
		p.note("older releases of llama.cpp have a sliding window in every other layer of this architecture, whatever the file says")
	}
	p.gemmaAttention(period, 46)
}

// noHead: llama.cpp's code for the architecture has no head beside the embedding.
func (p *plan) noHead() {
	if !p.model.TieEmbeddings {
		p.s.fail("tie_word_embeddings", "%v, but llama.cpp's %s takes the embedding for the head", p.s.vals["tie_word_embeddings"], p.family.arch)
	}
}

// cappedLogits: logits may be capped, which the class beside a vision tower does not do whatever its key says (model/gemma3.go).
func (p *plan) cappedLogits() {
	if c := p.model.LogitSoftcap; c > 0 {
		p.add("final_logit_softcapping", float32(c))
	}
}

// gemma3Keys are Gemma 3's.
func (p *plan) gemma3Keys() {
	s := p.s
	p.gemmaAttention(p.fullEach(s.int("sliding_window_pattern", s.int("_sliding_window_pattern", 6))), 62)
}

// fullEach is n where each n-th layer and no other has full attention: what layer_types say or, where they are not given, usual.
func (p *plan) fullEach(usual int) int {
	if types := p.s.strs("layer_types"); len(types) > 0 {
		return p.period(types)
	}
	return usual
}

// gemmaAttention is a window in all layers but each so many-th, and a scale of the scores that llama.cpp takes from other
// keys: by another rule in the model of 27B, which it knows by its number of layers.
func (p *plan) gemmaAttention(period, layersOf27B int) {
	s := p.s
	if period > 1 {
		p.add("attention.sliding_window", uint32(s.need("sliding_window")))
		p.add("attention.sliding_window_pattern", uint32(period))
	}
	want := p.headDim
	if p.layers == layersOf27B {
		want = s.need("hidden_size") / p.heads
	}
	if got := s.num("query_pre_attn_scalar", float64(want)); got != float64(want) {
		s.fail("query_pre_attn_scalar", "%g, but llama.cpp's %s takes %d from the other keys", got, p.family.arch, want)
	}
	if s.bool("use_bidirectional_attention", false) {
		s.fail("use_bidirectional_attention", "cannot be written as GGUF")
	}
	p.noBias()
}
