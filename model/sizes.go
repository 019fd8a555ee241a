package model

// counts are how many parameters a layer, or a part of one, has: all, and those in matrix products.
type counts struct{ all, matrix int64 }

func count(ps []Param) counts {
	var n counts
	for _, p := range ps {
		n.all += p.Elems()
		if p.Dims == 2 {
			n.matrix += p.Elems()
		}
	}
	return n
}

// Params is the number of parameters; a tied tensor counts once. It does not
// make the table.
func (c *Config) Params() int64 {
	n := blockNames{c, 0}
	moe, experts := int64(c.ExpertBlocks()), int64(c.NumExperts)
	head := c.headLayer()
	sum := head.Elems() + c.EmbedParam().Elems() + c.firstHalves().all
	if c.LearnedPositions {
		sum += int64(c.MaxPositions) * int64(c.HiddenSize)
	}
	sum += (int64(c.NumLayers) - moe) * count(n.mlp()).all
	if moe > 0 {
		sum += moe * (count(n.router()).all + experts*count(n.expert(0)).all + n.sharedExpert().all)
	}
	return sum
}

// MatrixParams is the number of parameters in the matrix products that one token goes through.
// Of a block's experts these are NumExpertsPerTok, the shared one and the router. The lm_head counts, tied or
// not; the embedding's gather does not.
func (c *Config) MatrixParams() int64 {
	n := blockNames{c, 0}
	moe := int64(c.ExpertBlocks())
	sum := int64(c.VocabSize)*int64(c.HiddenSize) + c.firstHalves().matrix
	sum += (int64(c.NumLayers) - moe) * count(n.mlp()).matrix
	if moe > 0 {
		sum += moe * (count(n.router()).matrix + int64(c.NumExpertsPerTok)*count(n.expert(0)).matrix + n.sharedExpert().matrix)
	}
	return sum
}

// firstHalves counts the first halves of all blocks: those with attention are alike, and so are those with a recurrence.
func (c *Config) firstHalves() (sum counts) {
	var of [2]*counts
	for b := range c.NumLayers {
		kind := 0
		if c.IsRecurrent(b) {
			kind = 1
		}
		if of[kind] == nil {
			n := count(blockNames{c, b}.attention())
			of[kind] = &n
		}
		sum.all, sum.matrix = sum.all+of[kind].all, sum.matrix+of[kind].matrix
	}
	return sum
}

// sharedExpert counts the expert that every token goes through.
func (n blockNames) sharedExpert() counts {
	if n.c.SharedSize == 0 {
		return counts{}
	}
	return count(n.expert(n.c.NumExperts))
}

// AttendedPairs is how many (query, key) pairs a document of so many tokens has
// in all blocks together.
func (c *Config) AttendedPairs(length int) (n int64) {
	for block := range c.NumLayers {
		n += c.BlockPairs(block, length)
	}
	return n
}

// BlockPairs is how many (query, key) pairs a document of so many tokens has in one block:
// n(n+1)/2, less where a window cuts them off or where the document is cut into stretches, and none in a block with a recurrence.
func (c *Config) BlockPairs(block, length int) int64 {
	if c.IsRecurrent(block) {
		return 0
	}
	if size := c.Stretch(block); size > 0 && length > size {
		return int64(length/size)*c.BlockPairs(block, size) + c.BlockPairs(block, length%size)
	}
	n, w := int64(length), int64(length)
	if window := c.Window(block); window > 0 {
		w = min(n, int64(window))
	}
	return w*(w+1)/2 + (n-w)*w
}

// FLOPs is the work of training on so many tokens, forward and backward, where pairs (query,
// key) pairs are attended in all blocks together: 6·MatrixParams for a token and
// 3·PairFLOPs for a pair, and less where tensors are frozen. Recomputation is not in it.
func (c *Config) FLOPs(tokens, pairs int64) float64 {
	return c.ForwardFLOPs(tokens, pairs) + c.BackwardFLOPs(tokens, pairs)
}

// ForwardFLOPs is the forward's part of FLOPs, a third where nothing is frozen.
func (c *Config) ForwardFLOPs(tokens, pairs int64) float64 {
	recurrences := 0.0
	if c.Recurrence != nil {
		recurrences = float64(int64(c.RecurrentBlocks()) * c.Recurrence.FLOPs())
	}
	return (2*float64(c.MatrixParams())+recurrences)*float64(tokens) + c.PairFLOPs()*float64(pairs)
}

// QKVProducts is how many multiply-adds make the queries, keys and values of a token in a block, with all that is made beside
// them.
func (c *Config) QKVProducts(block int) (sum int64) {
	for _, p := range (blockNames{c, block}).attention() {
		if p.Dims == 2 && p.Role != RoleO && p.Role != RoleRecurOut {
			sum += p.Elems()
		}
	}
	return sum
}
