package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("CopyColumns", copyColumnsCases) }

// copyColumnsCases tests rows that are as long as the copied part, and longer rows. In some cases all distances are
// multiples of 16 bytes, so that a device may copy 16 bytes at a time.
func copyColumnsCases(add func(string, func(*rig))) {
	for _, sh := range [][4]int{{1, 1, 1, 1}, {4, 5, 5, 9}, {7, 33, 40, 34}, {9, 16, 64, 16}, {5, 600, 600, 608}, {3, 0, 4, 4}, {0, 4, 4, 4}} {
		T, C, to, from := sh[0], sh[1], sh[2], sh[3]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			dst, src := r.act("dst", T*to), r.act("src", T*from)
			want := dst.copy()
			oracle.CopyColumns(want, src.v, T, C, to, from)
			dst.expect(want, 0, 0)
			enqueue(r, op.CopyColumns{Dst: dst.t, Src: src.t, T: T, C: C, DstStride: to, SrcStride: from})
		})
	}
}
