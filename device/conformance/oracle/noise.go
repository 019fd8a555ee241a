package oracle

import "math"

// AddNoise adds to x (T, C) what op.AddNoise says, with its names. cu bounds the documents.
func AddNoise(x []float64, cu []int32, from, first, step, C int, seed uint64, scale float64) {
	for t := range len(x) / C {
		at, doc := from+t, 0
		for int(cu[doc+1]) <= at {
			doc++
		}
		size := scale / math.Sqrt(float64(cu[doc+1]-cu[doc]))
		for c := range C {
			x[t*C+c] += size * Uniform(seed, step, first+at, c)
		}
	}
}

// Uniform is the number between −1 and 1 that is drawn for column c of a token's place in a step.
func Uniform(seed uint64, step, place, c int) float64 {
	l0, l1, r0, r1 := uint64(c/4), uint64(place), uint64(step), uint64(0)
	k0, k1 := seed&math.MaxUint32, seed>>32
	for range 10 { // Philox4x32-10: a round multiplies two words, whose lower halves change places with the others
		high0, low0 := (l0*0xd2511f53)>>32, (l0*0xd2511f53)&math.MaxUint32
		high1, low1 := (r0*0xcd9e8d57)>>32, (r0*0xcd9e8d57)&math.MaxUint32
		l0, l1, r0, r1 = high1^l1^k0, low1, high0^r1^k1, low0
		k0, k1 = (k0+0x9e3779b9)&math.MaxUint32, (k1+0xbb67ae85)&math.MaxUint32
	}
	word := [4]uint64{l0, l1, r0, r1}[c%4]
	return (float64(word>>8)+0.5)/(1<<23) - 1
}
