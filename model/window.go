package model

import "slices"

// The values of layer_types.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
	chunkedAttention = "chunked_attention"
)

// windows reads layer_types, which says what blocks have a sliding window of the given size
// (0: there is none). Where the key is missing, sliding says it.
func (c *Config) windows(f *fields, size int, sliding func(block int) bool) {
	has := c.blocksOf(f, slidingAttention, "sliding window", size, sliding)
	if !slices.Contains(has, true) {
		return
	}
	c.SlidingWindow = size
	if slices.Contains(has, false) {
		c.Sliding = has
	}
}

// stretches reads attention_chunk_size, and layer_types, which says in what blocks documents are cut into such
// stretches. Where the latter is missing these are the blocks that turn.
func (c *Config) stretches(f *fields) {
	size := f.int("attention_chunk_size", 0, 1, maxPositions)
	if has := c.blocksOf(f, chunkedAttention, "attention_chunk_size", size, c.Turns); slices.Contains(has, true) {
		c.StretchSize, c.Stretched = size, has
	}
}

// blocksOf are the blocks that layer_types gives attention of a kind other than full_attention, whose size is what and
// must not be 0. Where the key is missing, by says which they are, if there is a size.
func (c *Config) blocksOf(f *fields, kind, what string, size int, by func(block int) bool) []bool {
	types := c.typesOfLayers(f)
	if f.err != nil {
		return nil
	}
	has := make([]bool, c.NumLayers)
	for b := range has {
		has[b] = size > 0 && by(b)
		if types != nil {
			has[b] = types[b] == kind
			switch {
			case !has[b] && types[b] != fullAttention:
				f.fail("layer_types", "layer %d is %q; known: %s, %s", b, types[b], fullAttention, kind)
			case has[b] && size == 0:
				f.fail("layer_types", "layer %d is %q, and there is no %s", b, types[b], what)
			}
		}
	}
	return has
}

// typesOfLayers is the key layer_types, which has one for each layer; nil where it is missing.
func (c *Config) typesOfLayers(f *fields) []string {
	types := f.strs("layer_types")
	if types != nil && len(types) != c.NumLayers {
		f.fail("layer_types", "%d of them for %d layers", len(types), c.NumLayers)
	}
	return types
}

// uniformWindow gives all blocks the window of the key sliding_window, if there is one.
func (c *Config) uniformWindow(f *fields) {
	size := f.int("sliding_window", 0, 1, maxPositions)
	c.windows(f, size, func(int) bool { return true })
	if c.SlidingWindow != size || c.Sliding != nil {
		f.fail("layer_types", "this architecture has the sliding window in every layer or in none; remove layer_types")
	}
}

// noWindow refuses blocks with a sliding window.
func (c *Config) noWindow(f *fields) {
	for i, t := range f.strs("layer_types") {
		if t != fullAttention {
			f.fail("layer_types", "layer %d is %q; only %s is supported", i, t, fullAttention)
		}
	}
}

// layerTypes is the key layer_types.
func (c *Config) layerTypes() []string {
	out := make([]string, c.NumLayers)
	for b := range out {
		out[b] = fullAttention
		if c.Window(b) > 0 {
			out[b] = slidingAttention
		}
		if c.Stretch(b) > 0 {
			out[b] = chunkedAttention
		}
	}
	return out
}
