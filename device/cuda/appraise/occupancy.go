package appraise

// Block is what one thread block of a launch occupies on a multiprocessor: threads, registers and shared memory.
type Block struct {
	Threads   int
	Registers int // per thread
	Shared    int // bytes, static and dynamic
}

// Occupancy is how many thread blocks and warps of a launch a multiprocessor holds at a time.
type Occupancy struct {
	Blocks int    `json:"blocks"`
	Warps  int    `json:"warps"`
	Limit  string `json:"limit"` // the exhausted resource: registers, shared memory, warps or blocks
}

// SharedOfBlock returns the most bytes of shared memory of one block.
func (a *Architecture) SharedOfBlock() int { return a.Shared - sharedReserved }

// Occupancy computes how many blocks fit on a multiprocessor. Blocks is 0 if not even one fits.
func (a *Architecture) Occupancy(b Block) Occupancy {
	warps := (b.Threads + 31) / 32
	each := roundUp(32*b.Registers, registerUnit)
	out := Occupancy{Blocks: a.Blocks, Limit: "blocks"}
	for _, l := range []struct {
		blocks int
		limit  string
	}{
		{a.Warps / warps, "warps"},
		{registersOfSM / max(each, 1) / warpUnit * warpUnit / warps, "registers"},
		{a.Shared / roundUp(b.Shared+sharedReserved, sharedUnit), "shared memory"},
	} {
		if l.blocks < out.Blocks {
			out.Blocks, out.Limit = l.blocks, l.limit
		}
	}
	out.Warps = out.Blocks * warps
	return out
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
