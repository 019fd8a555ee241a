package model

// Recurrence is the mixing of a block's tokens that replaces attention in the blocks where Config.Recurrent is true. A
// model has at most one kind of recurrence.
type Recurrence interface {
	// ConvFLOPs returns one token's forward FLOPs in the convolution. StateFLOPs returns the FLOPs
	// of updating and reading the state carried from token to token. Neither includes matrix
	// products.
	ConvFLOPs() int64
	StateFLOPs() int64
	// params returns the parameters of the first half of block n, except the norm at its start.
	params(n blockNames) []Param
	// tensorNames returns the usual names of the tensors of role r; nil: the recurrence has no such role.
	tensorNames(r Role) []string
}

// Recurrence returns the recurrence of the model's recurrent blocks; nil: the model has none.
func (c *Config) Recurrence() Recurrence {
	switch {
	case c.GatedDeltaNet != nil:
		return c.GatedDeltaNet
	case c.Mamba2 != nil:
		return c.Mamba2
	case c.ShortConv != nil:
		return c.ShortConv
	case c.KDA != nil:
		return c.KDA
	}
	return nil
}

// RecurrenceFLOPs returns a token's forward FLOPs in one recurrent block besides the matrix products; 0: the model has
// no recurrence.
func (c *Config) RecurrenceFLOPs() int64 {
	if r := c.Recurrence(); r != nil {
		return r.ConvFLOPs() + r.StateFLOPs()
	}
	return 0
}

// recurrences returns the number of blocks with a recurrence, in place of attention or beside it.
func (c *Config) recurrences() int {
	if c.Beside {
		return c.NumLayers
	}
	return c.RecurrentBlocks()
}

// IsRecurrent says whether a block has a recurrence in place of attention.
func (c *Config) IsRecurrent(block int) bool { return block < len(c.Recurrent) && c.Recurrent[block] }

// RecurrentBlocks returns the number of blocks with a recurrence.
func (c *Config) RecurrentBlocks() (n int) {
	for b := range c.NumLayers {
		if c.IsRecurrent(b) {
			n++
		}
	}
	return n
}

// convTaps returns the parameter with the weights of a convolution: count taps for each channel. channels has the
// number of channels of each tensor.
func (n blockNames) convTaps(count int, channels ...int) Param {
	taps := matrix(RoleRecurTaps, count, n.stored(RoleRecurTaps, channels...))
	taps.Dims, taps.F32 = 3, true
	return taps
}

// recurrentBlocks sets c.Recurrent. A block is recurrent if its entry in types, the list
// layer_types, equals kind; all other entries must be full_attention. If types is nil, blocks for
// which by is true are recurrent.
func (c *Config) recurrentBlocks(f *fields, types []string, kind string, by func(block int) bool) {
	if f.err != nil {
		return
	}
	c.Recurrent = make([]bool, c.NumLayers)
	for b := range c.Recurrent {
		switch {
		case types == nil:
			c.Recurrent[b] = by(b)
		case types[b] == kind:
			c.Recurrent[b] = true
		case types[b] != fullAttention:
			f.fail("layer_types", "layer %d is %q; known: %s, %s", b, types[b], fullAttention, kind)
		}
	}
	if c.RecurrentBlocks() == 0 {
		c.Recurrent = nil
	}
}

// recurrentTypes returns the list layer_types that describes c. recurrent and other are the words
// for blocks with and without a recurrence.
func (c *Config) recurrentTypes(recurrent, other string) []string {
	types := make([]string, c.NumLayers)
	for b := range types {
		if types[b] = other; c.IsRecurrent(b) {
			types[b] = recurrent
		}
	}
	return types
}
