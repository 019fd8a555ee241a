package op

// MostSummed and sumsBytes bound the scratch for sums of DQ. It is a matter of the shape alone whether a backward is summed in it, so that no bit depends on
// the device's memory, nor on whether heads are computed all at once or one group after the other.
const (
	MostSummed = 1 << 16   // queries in all: of longer rows the sums of one group alone would be large
	sumsBytes  = 160 << 20 // that sums take at most, where that is enough for one group: of 8,192 queries they have 32 heads of 128
)

// summedWidth is how many columns of sums a head of dim elements has; 0 where it is not summed.
func summedWidth(dim int) int {
	for _, w := range []int{64, 96, 128} {
		if dim <= w {
			return w
		}
	}
	return 0
}

// SumsLen is how many f32 the sums of a backward take: of all heads, or of some groups of those that share a key head; 0
// where it is not summed. It needs TQ, Heads, KVHeads, Dim and Softcap. A sequence may take up to 15 queries more than it has.
func (a *AttentionShape) SumsLen() int {
	if a.TQ == 0 || a.TQ > MostSummed || a.Softcap > 0 || a.KVHeads <= 0 {
		return 0
	}
	group := a.Heads / a.KVHeads * (a.TQ + a.TQ/8 + 16) * summedWidth(a.Dim)
	if group == 0 {
		return 0
	}
	return min(a.KVHeads*group, max(group, sumsBytes/4)) // of fewer queries it is not more
}

// Summed says whether a backward of this shape that has Sums is summed in them. Sequences that are shorter than 128 queries on
// average are not: attention takes little of their time, and sums would take up to twice the room.
func (a *AttentionShape) Summed() bool { return a.SumsLen() > 0 && a.Seqs <= a.TQ/128+1 }
