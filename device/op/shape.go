package op

import (
	"fmt"

	"mt/base/human"
	"mt/device"
)

// Shape holds the sizes that decide an operation's cost, in a form that is made without allocating.
// String formats them for people.
type Shape struct {
	sizes  [5]int
	format func(sizes [5]int) string
}

// String formats the sizes; "" for the zero Shape.
func (s Shape) String() string {
	if s.format == nil {
		return ""
	}
	return s.format(s.sizes)
}

// BytesShape returns the Shape of an operation whose cost depends only on the bytes that it moves.
func BytesShape(bytes int64) Shape {
	return Shape{[5]int{int(bytes)}, func(n [5]int) string { return human.Bytes(int64(n[0])) }}
}

// Load is an upper bound of an operation's work, computed from its arguments alone. From it follows
// the longest time that the operation may take. A device that takes longer is stuck, not busy.
type Load struct {
	Shape Shape
	FLOPs float64      // 0: almost none
	DType device.DType // of the operands of the FLOPs
	Bytes int64        // of device memory; see Mover
}

// LoadOf returns the upper bound of o's work. It does not allocate.
func LoadOf(o device.Op) Load {
	var l Load
	if m, ok := o.(Mover); ok {
		l.Bytes = m.Bytes()
	}
	if w, ok := o.(Worker); ok {
		l.Shape, l.DType, l.FLOPs = w.MostWork()
	} else if l.Bytes > 0 {
		l.Shape = BytesShape(l.Bytes)
	}
	return l
}

// shape returns the sizes of the product for Work and MostWork.
func (m *MatMul) shape() Shape {
	flags := 0
	for i, set := range [...]bool{m.TransA, m.TransB, m.Ragged} {
		if set {
			flags |= 1 << i
		}
	}
	return Shape{[5]int{m.M, m.N, m.K, flags, m.Batch.N}, matMulShape}
}

func matMulShape(n [5]int) string {
	transA, transB, ragged := n[3]&1 != 0, n[3]&2 != 0, n[3]&4 != 0
	rows, inner := fmt.Sprint(n[0]), fmt.Sprint(n[2])
	switch {
	case ragged && transA:
		inner = atMost(n[2])
	case ragged:
		rows = atMost(n[0])
	}
	s := fmt.Sprintf("%s×%d×%s%s", rows, n[1], inner, transposes(transA, transB))
	if n[4] > 0 {
		s = fmt.Sprintf("%d of %s", n[4], s)
	}
	return s
}

func (a *AttentionShape) shape() Shape {
	return Shape{[5]int{a.Seqs, a.Heads, a.Dim}, func(n [5]int) string { return fmt.Sprintf("%d seqs, %d heads of %d", n[0], n[1], n[2]) }}
}

// most returns an upper bound of the FLOPs of one matrix product of attention. It assumes that every query attends to
// all keys of the longest sequence, or of its window.
func (a *AttentionShape) most() float64 {
	seen := a.MaxK
	if a.Window > 0 {
		seen = min(seen, a.Window)
	}
	return 2 * float64(a.TQ) * float64(seen) * float64(a.Heads) * float64(a.Dim)
}

func (a *DeltaShape) shape() Shape {
	byChannel := 0
	if a.ByChannel {
		byChannel = 1
	}
	return Shape{[5]int{a.T, a.Heads, a.KeyDim, a.ValueDim, byChannel}, func(n [5]int) string {
		return fmt.Sprintf("%d tokens, %d heads of %d by %d%s", n[0], n[1], n[2], n[3], [...]string{"", ", by channel"}[n[4]])
	}}
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (m *MatMul) MostWork() (Shape, device.DType, float64) {
	return m.shape(), m.A.DType, 2 * float64(max(1, m.Batch.N)) * float64(m.M) * float64(m.N) * float64(m.K)
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *Attention) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.Q.DType, 2 * a.most()
}

// MostWork implements Worker. It counts seven products, because a device may compute some of them twice.
func (a *AttentionBackward) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.Q.DType, 7 * a.most()
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *GatedDelta) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.QKV.DType, a.FLOPs()
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *GatedDeltaBackward) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.QKV.DType, 3 * a.FLOPs()
}

func (a *SSDShape) shape() Shape {
	return Shape{[5]int{a.T, a.Heads, a.HeadDim, a.StateDim}, func(n [5]int) string {
		return fmt.Sprintf("%d tokens, %d heads of %d by %d", n[0], n[1], n[2], n[3])
	}}
}

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *SSD) MostWork() (Shape, device.DType, float64) { return a.shape(), a.XBC.DType, a.FLOPs() }

// MostWork implements Worker: the shape, the operands' dtype, and an upper bound of the FLOPs.
func (a *SSDBackward) MostWork() (Shape, device.DType, float64) {
	return a.shape(), a.XBC.DType, 3 * a.FLOPs()
}
