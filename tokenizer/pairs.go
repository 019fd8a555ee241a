package tokenizer

// merge is what two neighbours become: the earlier in the file, the earlier.
type merge struct {
	rank, id int32
}

// noRank is the rank of a pair that never merges.
const noRank = 1<<31 - 1

// pairs is a hash table from two ids to their merge. It is written once, then
// read by all.
type pairs struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	key uint64 // left<<32 | right, plus one; 0: empty
	merge
}

// newPairs is a table with room for n pairs.
func newPairs(n int) pairs {
	bits := uint(4)
	for 1<<bits < n+n/2 {
		bits++
	}
	return pairs{make([]pairSlot, 1<<bits), 64 - bits}
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) + 1 }

func (p *pairs) slot(key uint64) *pairSlot {
	for i := key * 0x9e3779b97f4a7c15 >> p.shift; ; i++ {
		s := &p.slots[i&uint64(len(p.slots)-1)]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// set makes m what left and right become, whatever it was before.
func (p *pairs) set(left, right int32, m merge) {
	key := pairKey(left, right)
	s := p.slot(key)
	s.key, s.merge = key, m
}

// find is what left and right become; its rank is noRank where they stay.
func (p *pairs) find(left, right int32) merge {
	key := pairKey(left, right)
	if s := p.slot(key); s.key == key {
		return s.merge
	}
	return merge{rank: noRank}
}
