package ptx

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestShuffles: every mode of shfl moves values as the PTX manual defines it, for segments of 8 and
// of 32 threads.
func TestShuffles(t *testing.T) {
	for _, c := range []struct {
		mode     string
		by, ctrl uint32
		from     func(i int) int // source thread; outside the segment, the reader itself
	}{
		{"up", 3, 0, func(i int) int { return i - 3 }},
		{"up", 3, 0x1800, func(i int) int {
			if i%8 < 3 {
				return i
			}
			return i - 3
		}},
		{"down", 5, 31, func(i int) int { return i + 5 }},
		{"down", 5, 0x181f, func(i int) int {
			if i%8 > 2 {
				return i
			}
			return i + 5
		}},
		{"bfly", 9, 31, func(i int) int { return i ^ 9 }},
		{"idx", 6, 31, func(int) int { return 6 }},
		{"idx", 6, 0x181f, func(i int) int { return i&^7 | 6 }},
	} {
		body := fmt.Sprintf("mul.lo.s32 %%a, %%t, 10;\n shfl.sync.%s.b32 %%b|%%p, %%a, %d, %d, -1;\n @%%p add.s32 %%b, %%b, 1000;\n st.global.u32 [%%at], %%b;", c.mode, c.by, c.ctrl)
		got := testkit.Must(runSmall(t, body, 0, 1))(t)
		for n, v := range got {
			i, warp := n%32, n/32*32
			from := c.from(i)
			in := from >= 0 && from < 32 && !(c.ctrl>>8 != 0 && from == i && c.mode != "idx")
			want := uint32(10 * n)
			if in {
				want = uint32(10*(warp+from)) + 1000
			}
			if v != want {
				t.Errorf("%s: thread %d has %d, want %d", body, n, v, want)
			}
		}
	}
}

func TestWarpInstructions(t *testing.T) {
	for _, c := range []struct {
		body string
		want func(i uint32) uint32
	}{
		{"and.b32 %a, %t, 3; setp.eq.s32 %p, %a, 1; vote.sync.ballot.b32 %b, %p, -1;", func(uint32) uint32 { return 0x22222222 }},
		{"setp.eq.s32 %p, %t, 33; vote.sync.any.pred %q, %p, -1; selp.u32 %b, 1, 0, %q;", func(i uint32) uint32 { return i / 32 }},
		{"setp.ne.s32 %p, %t, 33; vote.sync.any.pred %q, !%p, -1; selp.u32 %b, 1, 0, %q;", func(i uint32) uint32 { return i / 32 }},
		{"setp.ne.s32 %p, %t, 33; vote.sync.all.pred %q, %p, -1; selp.u32 %b, 1, 0, %q;", func(i uint32) uint32 { return 1 - i/32 }},
		{"and.b32 %a, %t, 7; match.any.sync.b32 %b, %a, -1;", func(i uint32) uint32 { return 0x01010101 << (i & 7) }},
		{"redux.sync.add.s32 %b, %t, -1;", func(i uint32) uint32 { return 31*16 + i/32*1024 }},
		{"redux.sync.max.u32 %b, %t, -1;", func(i uint32) uint32 { return i | 31 }},
		{"mov.u32 %b, %laneid;", func(i uint32) uint32 { return i & 31 }},
		{"mov.u32 %b, %warpid;", func(i uint32) uint32 { return i / 32 }},
		{"mov.u32 %b, %lanemask_lt;", func(i uint32) uint32 { return 1<<(i&31) - 1 }},
		{"bar.warp.sync -1; mov.u32 %b, %ntid.x;", func(uint32) uint32 { return 64 }},
		{"atom.global.add.u32 %b, [%p0+252], 0;\n bar.sync 0;", func(uint32) uint32 { return 63 }},
		{"and.b32 %a, %t, 3; T: .branchtargets L0, L1, L0, L2;\n brx.idx %a, T;\n L0: mov.u32 %b, 5; bra M;\n L1: mov.u32 %b, 6; bra M;\n L2: mov.u32 %b, 7;\n M: shfl.sync.bfly.b32 %b, %b, 0, 31, -1;",
			func(i uint32) uint32 { return []uint32{5, 6, 5, 7}[i&3] }},
		{".local .align 4 .b8 depot[8]; mov.u64 %g, depot; cvta.local.u64 %g, %g; st.u32 [%g+4], %t; mov.u64 %o, depot; ld.local.u32 %b, [%o+4];",
			func(i uint32) uint32 { return i }},
		{".const .align 4 .b32 table[4] = {10, 20, 30, 40}; and.b32 %a, %t, 3; mul.wide.u32 %o, %a, 4; mov.u64 %g, table; add.s64 %g, %g, %o; ld.const.u32 %b, [%g];",
			func(i uint32) uint32 { return 10 * (i&3 + 1) }},
		{"ld.global.u8 %b, [%at]; ld.global.s8 %c, [%at]; add.s32 %b, %b, %c; sub.s32 %b, %b, %t;", func(i uint32) uint32 { return i }},
		{"{ .reg .b32 %b2; add.s32 %b2, %t, 4; mov.u32 %b, %b2; }\n { .reg .b32 %b2; mov.u32 %b2, %b; add.s32 %b, %b2, 1; }", func(i uint32) uint32 { return i + 5 }},
	} {
		got, err := runSmall(t, c.body+"\n st.global.u32 [%at], %b;", 0, 1)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		for i, v := range got {
			if v != c.want(uint32(i)) {
				t.Errorf("%s: thread %d has %#x, want %#x", c.body, i, v, c.want(uint32(i)))
				break
			}
		}
	}
}

// TestAtomics: if 128 threads of two blocks update one word by atomic instructions, the result is
// the same in every order.
func TestAtomics(t *testing.T) {
	for _, c := range []struct {
		op   string
		want uint32
	}{
		{"red.global.add.u32 [%p0], %t;", 100 + 2*63*32}, {"red.global.max.s32 [%p0], %t;", 100}, {"red.global.min.s32 [%p0], %t;", 0},
		{"red.global.or.b32 [%p0], %t;", 127}, {"red.global.xor.b32 [%p0], %t;", 100},
		{"atom.global.exch.b32 %a, [%p0], 9;", 9}, {"atom.global.cas.b32 %a, [%p0], 100, 55;", 55},
		{"mov.f32 %f, 0f3F800000; red.global.add.f32 [%p0], %f;", bits32(128 + f32(100))},
	} {
		var h heap
		buf := h.add("words", make([]byte, 256))
		binary.LittleEndian.PutUint32(buf.Data, 100)
		l := Launch{Kernel: parse(t, strings.Replace(small(c.op), ".reg .pred", ".reg .f32 %f;\n.reg .pred", 1)).Kernel("k"), Grid: dim(2), Block: dim(64),
			Params: params(buf.Base, uint32(0)), Memory: h}
		testkit.Must(l.Run())(t)
		// The word 100, read as a float, is the denormal 100·2⁻¹⁴⁹. Adding 1 to it 128 times gives
		// 128.
		if got := binary.LittleEndian.Uint32(buf.Data); got != c.want {
			t.Errorf("%s gives %d, want %d", c.op, got, c.want)
		}
	}
}

// TestMMA: both shapes of mma.sync give exact products of small integers, with fragments in the
// layout of the PTX manual.
func TestMMA(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, depth := range []int{8, 16} {
		var a [16][16]float32
		var b [16][8]float32
		var c [16][8]float32
		for i := range 16 {
			for k := range depth {
				a[i][k] = float32(rng.IntN(9) - 4)
			}
			for j := range 8 {
				b[i][j], c[i][j] = float32(rng.IntN(9)-4), float32(rng.IntN(100))
			}
		}
		pair := func(x, y float32) uint32 { return bits32(x)>>16 | bits32(y)&0xffff0000 }
		var h heap
		in, out := h.add("fragments", nil), h.add("d", make([]byte, 32*16))
		for lane := range 32 {
			g, k := lane/4, lane%4*2
			frag := []uint32{pair(a[g][k], a[g][k+1]), pair(a[g+8][k], a[g+8][k+1]), 0, 0, pair(b[k][g], b[k+1][g]), 0, 0, 0}
			if depth == 16 {
				frag[2], frag[3] = pair(a[g][k+8], a[g][k+9]), pair(a[g+8][k+8], a[g+8][k+9])
				frag[5] = pair(b[k+8][g], b[k+9][g])
			}
			in.Data = append(in.Data, words32(frag...)...)
			in.Data = append(in.Data, words32(bits32(c[g][k]), bits32(c[g][k+1]), bits32(c[g+8][k]), bits32(c[g+8][k+1]))...)
		}
		mma := "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};"
		if depth == 8 {
			mma = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r4}, {%f0, %f1, %f2, %f3};"
		}
		k := parse(t, header+`.visible .entry k(.param .u64 d, .param .u64 s) {
	.reg .b32 %r<9>; .reg .f32 %f<4>; .reg .b64 %d<4>;
	ld.param.u64 %d0, [d]; ld.param.u64 %d1, [s];
	mov.u32 %r8, %tid.x;
	mul.wide.u32 %d2, %r8, 48; add.s64 %d1, %d1, %d2;
	mul.wide.u32 %d2, %r8, 16; add.s64 %d0, %d0, %d2;
	ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];
	ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d1+16];
	ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d1+32];
	`+mma+`
	st.global.v4.f32 [%d0], {%f0, %f1, %f2, %f3};
	ret; }`).Kernel("k")
		l := Launch{Kernel: k, Grid: dim(1), Block: dim(32), Params: params(out.Base, in.Base), Memory: h}
		testkit.Must(l.Run())(t)
		for n := range 128 {
			lane, e := n/4, n%4
			i, j := lane/4+e/2*8, lane%4*2+e%2
			want := c[i][j]
			for p := range depth {
				want += a[i][p] * b[p][j]
			}
			if got := getF32(out.Data, n); got != want {
				t.Fatalf("depth %d: element %d,%d is %v, want %v", depth, i, j, got, want)
			}
		}
	}
}

// TestLanes: the assembly functions give the same bits as the Go functions that they replace.
func TestLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		var a, b, c, got, want lanes32
		for i := range a {
			a[i], b[i], c[i] = rng.Uint32(), rng.Uint32()>>rng.IntN(32), rng.Uint32()
		}
		for name, f := range map[string][2]func(d, a, b *lanes32){"add": {addF32, addF32Go}, "sub": {subF32, subF32Go}, "mul": {mulF32, mulF32Go},
			"fma": {func(d, a, b *lanes32) { fmaF32(d, a, b, &c) }, func(d, a, b *lanes32) { fmaF32Go(d, a, b, &c) }}} {
			f[0](&got, &a, &b)
			f[1](&want, &a, &b)
			for i := range got {
				if !sameF32(got[i], want[i]) {
					t.Fatalf("%s of %#x, %#x, %#x: %#x and %#x", name, a[i], b[i], c[i], got[i], want[i])
				}
			}
		}
		var off lanes64
		var bounds [3][8]uint32
		offsets32(&off, &a, b[0], &bounds)
		lo, hi, or := full, uint32(0), uint32(0)
		for j := range 8 {
			lo, hi, or = min(lo, bounds[0][j]), max(hi, bounds[1][j]), or|bounds[2][j]
		}
		for i := range a {
			v := a[i] + b[0]
			if off[i] != uint64(v) || v < lo || v > hi || v&^or != 0 {
				t.Fatalf("offset %d is %d, want %d in [%d, %d] of bits %#x", i, off[i], v, lo, hi, or)
			}
		}
		var wide, far lanes64
		for i := range wide {
			wide[i] = rng.Uint64() >> (2 + rng.IntN(60))
		}
		const imm = 1 << 40
		var wideBounds [3][4]uint64
		offsets64(&far, &wide, imm, &wideBounds)
		low, high, any := ^uint64(0), uint64(0), uint64(0)
		for j := range 4 {
			low, high, any = min(low, wideBounds[0][j]), max(high, wideBounds[1][j]), any|wideBounds[2][j]
		}
		for i := range wide {
			if v := wide[i] + imm; far[i] != v || v < low || v > high || v&^any != 0 {
				t.Fatalf("offset %d is %d, want %d in [%d, %d] of bits %#x", i, far[i], v, low, high, any)
			}
		}
	}
}

// TestPostDominators: the post-dominators of a graph with two nested branches and a loop are right.
func TestPostDominators(t *testing.T) {
	got := postDominators([][]int{{1, 5}, {2, 3}, {4}, {4, 3}, {6}, {6}, {7}, nil})
	want := []int{6, 4, 4, 4, 6, 6, 7, 7}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("node %d is post-dominated by %d, want %d", i, got[i], want[i])
		}
	}
}

// TestPermutation: every walk visits each of the n items once.
func TestPermutation(t *testing.T) {
	for n := uint64(1); n < 64; n++ {
		for seed := range uint64(8) {
			from, step := permutation(n, mix(seed))
			var met uint64
			for i := range n {
				met |= 1 << ((from + i*step) % n)
			}
			if bits.OnesCount64(met) != int(n) {
				t.Fatalf("walk from %d by %d over %d meets %#x", from, step, n, met)
			}
		}
	}
}
