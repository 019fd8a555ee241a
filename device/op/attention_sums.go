package op

// MostSummed and sumsBytes limit the scratch memory in which attention's backward sums DQ, the
// gradient of queries. The shape alone decides whether the backward uses this memory. So no bit of
// the result depends on the device's memory, or on whether heads are computed all at once or in
// groups.
const (
	MostSummed = 1 << 16   // queries of all sequences; above it the sums of a single key/value group would be too large
	sumsBytes  = 160 << 20 // most bytes of sums, if one group fits: room for 32 heads of 128 over 8,192 queries
)

// summedWidth returns how many columns a head of dim elements takes in the scratch memory
// AttentionBackward.Sums. 0: heads are too wide for Sums.
func summedWidth(dim int) int {
	for _, w := range []int{64, 96, 128} {
		if dim <= w {
			return w
		}
	}
	return 0
}

// SumsLen returns how many f32 elements AttentionBackward.Sums needs; 0: the backward does not use
// Sums. The length is enough for all heads or, if that is too much, for some key/value groups at a
// time. It depends on TQ, Heads, KVHeads, Dim and Softcap, and includes up to 15 padding queries
// for each sequence.
func (a *AttentionShape) SumsLen() int {
	if a.TQ == 0 || a.TQ > MostSummed || a.Softcap > 0 || a.KVHeads <= 0 {
		return 0
	}
	group := a.Heads / a.KVHeads * (a.TQ + a.TQ/8 + 16) * summedWidth(a.Dim)
	if group == 0 {
		return 0
	}
	return min(a.KVHeads*group, max(group, sumsBytes/4)) // fewer queries never need more
}

// Summed reports whether a backward of this shape uses its Sums. Sequences below 128 queries on average do not: their
// attention is cheap, and sums would take up to twice the memory.
func (a *AttentionShape) Summed() bool { return a.SumsLen() > 0 && a.Seqs <= a.TQ/128+1 }
