package host

import (
	"fmt"
	"testing"

	"mt/model"
)

func bigEmbedding(rows, cols int, bf16 bool) model.Layout {
	return model.NewLayout(embedding(rows, cols), bf16, model.Param{})
}

// The tied table moves as it would by the dense sum of both parts.
func TestTiedTableMovesByTheSum(t *testing.T) {
	for _, dstBF16 := range []bool{false, true} {
		for _, rowsBF16 := range []bool{false, true} {
			t.Run(fmt.Sprintf("slab bf16 %t, rows bf16 %t", dstBF16, rowsBF16), func(t *testing.T) {
				l := layouts(true)
				tied, dense := newStore(t, l, poolOf(t, 2)), newStore(t, l, nil)
				fillStore(tied, 11, mean)
				fillStore(dense, 11, mean)
				ref := l[2].Tensors[1]
				slab := gradOf(l[2].GradElems, dstBF16, 1, mean)
				ids := []int32{0, 3, 4, 40, 66}
				rows := gradOf(int64(len(ids)*ref.Cols), rowsBF16, 2, mean)

				part := slab.part(ref.Elem, int(ref.Elems()))
				sum := part.values()
				for i, x := range rows.values() {
					sum[int(ids[i/ref.Cols])*ref.Cols+i%ref.Cols] += x
				}
				before := slab.values()[:ref.Elem]
				AddRows(poolOf(t, 3), part, ids, rows, ref.Cols)
				want := gradFrom(sum, dstBF16)
				sameFloats(t, "sum", want.values(), part.values())
				sameFloats(t, "norm's gradient", before, slab.values()[:ref.Elem])

				tied.UpdateTensor(0, 0, part, recipe)
				tied.Update(2, slab, recipe)
				dense.Update(0, Grad{Data: padded(want, l[0].Elems), BF16: dstBF16, Elems: l[0].Elems}, recipe)
				dense.Update(2, slab, recipe)
				sameBits(t, dense, tied)
			})
		}
	}
}

// padded are the bytes of g and zeros up to elems elements.
func padded(g Grad, elems int64) []byte {
	b := bytesOf(make([]float32, elems))
	copy(b, g.Data)
	return b
}

func TestMisuseOfAddRowsPanics(t *testing.T) {
	dst := gradFrom(make([]float32, 12), false)
	one := gradFrom(make([]float32, 4), false)
	tests := map[string]func(){
		"id outside":      func() { AddRows(nil, dst, []int32{3}, one, 4) },
		"ids that fall":   func() { AddRows(nil, dst, []int32{1, 0}, dst, 4) },
		"too few rows":    func() { AddRows(nil, dst, []int32{0, 1}, one, 4) },
		"broken rows":     func() { AddRows(nil, dst, []int32{0}, one, 5) },
		"without columns": func() { AddRows(nil, dst, nil, one, 0) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) { mustPanic(t, f) })
	}
}
