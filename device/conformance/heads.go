package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("CopyHeads", copyHeadsCases)
	row("SumHeads", sumHeadsCases)
}

// headShapes are shapes of CopyHeads and SumHeads: rows, heads, elements of each head, and zeros behind each head. In
// some shapes all distances are multiples of 16 bytes, so that a device may copy 16 bytes at a time.
var headShapes = [][4]int{{1, 1, 1, 0}, {4, 3, 5, 2}, {7, 2, 33, 1}, {9, 4, 16, 8}, {9, 4, 16, 3}, {6, 4, 12, 4}, {5, 6, 128, 64}, {3, 20, 64, 0}, {2, 3, 0, 4}, {3, 2, 0, 0}, {3, 0, 4, 4}, {0, 2, 4, 4}}

func copyHeadsCases(add func(string, func(*rig))) {
	for _, sh := range headShapes {
		for _, kind := range []string{"", " shared", " odd"} {
			T, heads, C, zeros := sh[0], sh[1], sh[2], sh[3]
			to, from := oracle.Heads{Head: C + zeros + 8}, oracle.Heads{Head: C + zeros + 24}
			to.Stride, from.Stride = heads*to.Head+16, heads*from.Head+8
			switch kind {
			case " shared": // all heads read the same elements, and no gap between heads
				to.Head, from.Head = C+zeros, 0
			case " odd": // rows may begin at multiples of 16 bytes while heads do not
				from.Head--
			}
			add(fmt.Sprintf("%v%s", sh, kind), func(r *rig) {
				dst, src := r.act("dst", T*to.Stride), r.act("src", T*from.Stride)
				want := dst.copy()
				oracle.CopyHeads(want, src.v, T, heads, C, zeros, to, from)
				dst.expect(want, 0, 0)
				enqueue(r, op.CopyHeads{Dst: dst.t, Src: src.t, T: T, Heads: heads, C: C, Zeros: zeros,
					DstStride: to.Stride, DstHead: to.Head, SrcStride: from.Stride, SrcHead: from.Head})
			})
		}
	}
}

func sumHeadsCases(add func(string, func(*rig))) {
	for _, sh := range headShapes {
		T, heads, C := sh[0], sh[1], sh[2]
		from := oracle.Heads{Stride: heads*(C+8) + 16, Head: C + 8}
		stride := C + sh[3]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			dst, src := r.act("dst", T*stride), r.act("src", T*from.Stride)
			want := dst.copy()
			oracle.SumHeads(want, src.v, T, heads, C, stride, from)
			dst.expect(want, summing(heads), 1)
			enqueue(r, op.SumHeads{Dst: dst.t, Src: src.t, T: T, Heads: heads, C: C, DstStride: stride,
				SrcStride: from.Stride, SrcHead: from.Head})
		})
	}
}
