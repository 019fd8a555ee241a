package ptx

import (
	"encoding/binary"
	"testing"

	"mt/internal/testkit"
)

// TestSharedLayout: shared variables have the offsets that ptxas 13 gives them: the kernel's own first, then the
// module's, both in the order of their declarations, whatever order the instructions use. ptxas -v reports 120 bytes.
func TestSharedLayout(t *testing.T) {
	const text = `.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 m4[4];
.shared .align 16 .b8 m16[32];
.shared .align 8 .b8 m8[8];
.shared .align 16 .b8 unused[16];
.visible .entry k(.param .u64 p) {
	.reg .b64 %a; .reg .b32 %r;
	.shared .align 4 .b8 l4[4];
	.shared .align 16 .b8 l16[48];
	ld.param.u64 %a, [p];
	mov.u32 %r, l16; st.global.u32 [%a], %r;
	mov.u32 %r, m8; st.global.u32 [%a+4], %r;
	mov.u32 %r, l4; st.global.u32 [%a+8], %r;
	mov.u32 %r, m16; st.global.u32 [%a+12], %r;
	mov.u32 %r, m4; st.global.u32 [%a+16], %r;
	ret;
}`
	var h heap
	buf := h.add("offsets", make([]byte, 20))
	l := Launch{Kernel: parse(t, text).Kernel("k"), Grid: dim(1), Block: dim(1), Memory: h, Params: params(buf.Base)}
	testkit.Must(l.Run())(t)
	base := binary.LittleEndian.Uint32(buf.Data[8:])
	for i, want := range []uint32{16, 112, 0, 80, 64} {
		if got := binary.LittleEndian.Uint32(buf.Data[4*i:]) - base; got != want {
			t.Errorf("variable %d is at %d, want %d", i, got, want)
		}
	}
	if l.Kernel.StaticShared != 120 {
		t.Errorf("%d bytes of static shared memory, want 120", l.Kernel.StaticShared)
	}
}
