package model

// The values of layer_types.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// windows reads layer_types, which says what blocks have a sliding window of the given size
// (0: there is none). Where the key is missing, sliding says it.
func (c *Config) windows(f *fields, size int, sliding func(block int) bool) {
	types := f.strs("layer_types")
	if types != nil && len(types) != c.NumLayers {
		f.fail("layer_types", "%d of them for %d layers", len(types), c.NumLayers)
	}
	if f.err != nil {
		return
	}
	has, some, all := make([]bool, c.NumLayers), false, true
	for b := range has {
		has[b] = size > 0 && sliding(b)
		if types != nil {
			has[b] = types[b] == slidingAttention
			switch {
			case !has[b] && types[b] != fullAttention:
				f.fail("layer_types", "layer %d is %q; known: %s, %s", b, types[b], fullAttention, slidingAttention)
			case has[b] && size == 0:
				f.fail("layer_types", "layer %d is %q, and there is no sliding window", b, types[b])
			}
		}
		some, all = some || has[b], all && has[b]
	}
	if !some {
		return
	}
	c.SlidingWindow = size
	if !all {
		c.Sliding = has
	}
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
	}
	return out
}
