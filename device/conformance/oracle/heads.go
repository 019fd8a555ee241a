package oracle

// Heads says where heads of rows lie: element (t, head, c) at t·Stride + head·Head + c.
type Heads struct{ Stride, Head int }

func (h Heads) at(t, head, c int) int { return t*h.Stride + head*h.Head + c }

// CopyHeads copies C elements of each head of T rows of src to dst, and clears the zeros
// elements behind them.
func CopyHeads(dst, src []float64, T, heads, C, zeros int, to, from Heads) {
	for t := range T {
		for h := range heads {
			for c := range C + zeros {
				dst[to.at(t, h, c)] = 0
				if c < C {
					dst[to.at(t, h, c)] = src[from.at(t, h, c)]
				}
			}
		}
	}
}

// SumHeads sets C elements of each of T rows of dst, stride apart, to the sum over the heads
// of src.
func SumHeads(dst, src []float64, T, heads, C, stride int, from Heads) {
	for t := range T {
		for c := range C {
			var sum float64
			for h := range heads {
				sum += src[from.at(t, h, c)]
			}
			dst[t*stride+c] = sum
		}
	}
}
