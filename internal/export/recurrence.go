package export

// recurrences are the keys of blocks with a recurrence. What llama.cpp takes for granted must be so: that values are as long as keys, that each n-th block
// and no other has attention, and that there are no biases.
func (p *plan) recurrences() {
	s := p.s
	keys, heads, key := s.int("linear_num_key_heads", 16), s.int("linear_num_value_heads", 32), s.int("linear_key_head_dim", 128)
	value := s.int("linear_value_head_dim", 128)
	if value != key {
		s.fail("linear_value_head_dim", "%d, where linear_key_head_dim is %d: llama.cpp's %s has one for both", value, key, p.family.arch)
	}
	p.noBias()
	attends := s.int("full_attention_interval", 4) // the last block of each so many
	if types := s.strs("layer_types"); len(types) > 0 {
		attends = p.period(types)
	}
	p.add("ssm.conv_kernel", uint32(s.int("linear_conv_kernel_dim", 4)))
	p.add("ssm.state_size", uint32(key))
	p.add("ssm.group_count", uint32(keys))
	p.add("ssm.time_step_rank", uint32(heads))
	p.add("ssm.inner_size", uint32(heads*value))
	p.add("full_attention_interval", uint32(attends))
	p.add("expert_shared_feed_forward_length", uint32(s.need("shared_expert_intermediate_size")))
}
