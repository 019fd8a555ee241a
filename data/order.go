package data

import "math/bits"

const feistelRounds = 8

// permutation is a bijection of [0, n). It takes constant memory, and constant expected time
// for each index. It is a Feistel network over a power of four that is at least n, applied
// again and again until the result is below n (cycle walking: Black and Rogaway, "Ciphers
// with Arbitrary Finite Domains", 2002).
type permutation struct {
	n    uint64
	half int // bits in each of the two halves of the network's domain
	keys [feistelRounds]uint64
}

// newPermutation is one of the permutations that seed gives, which stream numbers.
func newPermutation(n int64, seed int64, stream uint64) permutation {
	p := permutation{n: uint64(n), half: 1}
	if n > 1 {
		p.half = max(1, (bits.Len64(p.n-1)+1)/2)
	}
	state := scramble(scramble(uint64(seed)) ^ stream)
	for i := range p.keys {
		state = scramble(state)
		p.keys[i] = state
	}
	return p
}

// at is what i is mapped to, for 0 <= i < n.
func (p permutation) at(i int64) int64 {
	x := uint64(i)
	for {
		if x = p.encrypt(x); x < p.n {
			return int64(x)
		}
	}
}

func (p permutation) encrypt(x uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	l, r := x>>p.half, x&mask
	for _, k := range p.keys {
		l, r = r, l^scramble(r^k)&mask
	}
	return l<<p.half | r
}

// scramble is one step of SplitMix64. Source: Steele, Lea, Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
