package gemm

import (
	"unsafe"

	"mt/base/bf16"
	"mt/base/parallel"
)

const (
	// maxDotRows is the largest M for which kernels read B where it lies, without packing. Such a product takes as long
	// as reading B once. Packing would read B twice and write it once.
	maxDotRows = 4
	// dotUnit is the approximate number of bytes of B that a thread takes at a time.
	dotUnit = 256 << 10
)

// runDots computes op(A)·Bᵀ if A has at most maxDotRows rows. Each element of D is the dot product
// of a row of A and a row of B.
func (w *Workspace) runDots(p *parallel.Pool) {
	w.x = grown(w.x, w.M*w.K)
	for m := range w.M {
		for k := range w.K {
			if w.TransA {
				w.x[m*w.K+k] = w.left.value(k*w.left.ld + m)
			} else {
				w.x[m*w.K+k] = w.left.value(m*w.left.ld + k)
			}
		}
	}
	w.next.Store(0)
	p.Run(min(w.threads, ceil(w.N, w.dotRows())), w.dotBody)
}

// dotRows returns how many rows of B a thread takes at a time: about dotUnit bytes, and a multiple
// of four rows.
func (w *Workspace) dotRows() int { return max(roundUp(dotUnit/(w.K*w.right.size()), 4), 4) }

// dotLane computes columns of D on the thread with number lane, which claims one group of B's rows
// after another.
func (w *Workspace) dotLane(lane int) {
	rows := w.dotRows()
	units := ceil(w.N, rows)
	for u := w.claim(); u < units; u = w.claim() {
		end := min((u+1)*rows, w.N)
		for n := u * rows; n < end; n += 4 {
			w.dotGroup(&w.lanes[lane], n, min(4, end-n))
		}
	}
}

// dotGroup computes count columns of D, from column n on: dot products of each row of A with count rows of B. count is
// at most four.
func (w *Workspace) dotGroup(s *lane, n, count int) {
	for i := range s.four {
		s.four[i] = min(i, count-1) * w.right.ld * w.right.size()
	}
	for m := range w.M {
		w.level.dot(&s.sums, &w.x[m*w.K], w.right.at(n, 0), &s.four, w.K)
		for i, sum := range s.sums[:count] {
			w.put(m, n+i, sum)
		}
	}
}

// addOnly writes D for K = 0. The product is then 0, so D is C plus the bias.
func (w *Workspace) addOnly() {
	for m := range w.M {
		for n := range w.N {
			w.put(m, n, 0)
		}
	}
}

// put writes sum plus C and bias to element (m, n) of D.
func (w *Workspace) put(m, n int, sum float32) {
	i := m*w.result.ld + n
	if w.C != nil {
		c := w.result
		c.p = w.C
		sum += c.value(i)
	}
	if w.Bias != nil {
		sum += *at((*float32)(w.Bias), n)
	}
	if w.DBF16 {
		*(*uint16)(unsafe.Add(w.D, 2*i)) = bf16.Round(sum)
		return
	}
	*(*float32)(unsafe.Add(w.D, 4*i)) = sum
}
