package export

import "slices"

// llama4Keys are Llama 4's. llama.cpp takes for granted what published models have: stretches, and what tempers queries; which
// blocks have them; and that all norm queries and keys but those with 128 experts.
func (p *plan) llama4Keys() {
	s, must := p.s, func(key string, is, want any) {
		if is != want {
			p.s.fail(key, "is %v, but llama.cpp's %s takes it to be %v: the model would be another", is, p.family.arch, want)
		}
	}
	must("attention_chunk_size", s.int("attention_chunk_size", 0), 8192)
	tempers := s.vals["attn_temperature_tuning"]
	if x, ok := number(tempers); ok { // so it stands in published files
		tempers = x != 0
	}
	must("attn_temperature_tuning", tempers, true)
	must("floor_scale", s.num("floor_scale", 0), 8192.0)
	must("attn_scale", s.num("attn_scale", 0), 0.1)
	must("use_qk_norm", s.bool("use_qk_norm", true), p.expertCount() != 128)
	for i, kind := range s.strs("layer_types") {
		if (kind == "full_attention") != ((i+1)%4 == 0) {
			s.fail("layer_types", "layer %d is %s: llama.cpp's %s has full attention in each fourth layer and no other", i, kind, p.family.arch)
		}
	}
	if step := p.expertsEach(); step > 0 {
		p.expertCounts()
		p.add("interleave_moe_layer_step", uint32(step))
	} else {
		s.fail("moe_layers", "has no layer: llama.cpp's %s is not written without experts", p.family.arch)
	}
	p.add("expert_feed_forward_length", uint32(s.need("intermediate_size")))
}

// expertsEach is n where every n-th block and no other has experts; 0 where none has.
func (p *plan) expertsEach() int {
	listed, ok := p.s.vals["moe_layers"].([]any)
	if !ok {
		return p.s.need("interleave_moe_layer_step")
	}
	var blocks []int
	for _, v := range listed {
		x, _ := number(v)
		blocks = append(blocks, int(x))
	}
	if len(blocks) == 0 {
		return 0
	}
	step := slices.Min(blocks) + 1
	for b := range p.layers {
		if slices.Contains(blocks, b) != ((b+1)%step == 0) {
			p.s.fail("moe_layers", "layer %d: llama.cpp's %s has experts in every n-th layer and no other", b, p.family.arch)
			break
		}
	}
	return step
}
