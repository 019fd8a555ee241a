package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// small is a kernel for 64 threads. It has the parameters p, a pointer, and n, 128
// words of static shared memory, and the number of the thread in %t.
func small(body string) string {
	return header + `.visible .entry k(.param .u64 p, .param .u32 n)
.maxntid 64, 1, 1
{
	.reg .pred %p, %q;
	.reg .b32 %t, %n, %a, %b, %c, %d, %s;
	.reg .b64 %p0, %at, %o, %g;
	.shared .align 16 .b8 space[512];
	mov.u32 %t, %tid.x;
	ld.param.u32 %n, [n];
	ld.param.u64 %p0, [p];
	mul.wide.u32 %o, %t, 4;
	add.s64 %at, %p0, %o;
	mov.u32 %s, space;
	shl.b32 %a, %t, 2;
	add.s32 %s, %s, %a;
` + body + `
	ret;
}`
}

// runSmall runs the kernel small(body) as one block, on a buffer of 64 words that
// hold their indices.
func runSmall(t *testing.T, body string, n uint32, seed uint64) ([]uint32, error) {
	t.Helper()
	var h heap
	buf := h.add("words", make([]byte, 256))
	for i := range 64 {
		binary.LittleEndian.PutUint32(buf.Data[4*i:], uint32(i))
	}
	l := Launch{Kernel: parse(t, small(body)).Kernel("k"), Grid: dim(1), Block: dim(64), Params: params(buf.Base, n), Memory: h, Seed: seed, CheckGlobal: true}
	_, err := l.Run()
	out := make([]uint32, 64)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(buf.Data[4*i:])
	}
	return out, err
}

// TestCatches: each mistake is reported at the line with the mark //!, with the
// words wanted, in whatever order the warps run.
func TestCatches(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"store past the end", "st.global.u32 [%at+4], %t; //!", "0 bytes after the end of words, which has 256"},
		{"load before the start", "ld.global.u32 %a, [%at+-8]; //!", "no allocation"},
		{"null pointer", "mov.u64 %p0, 0; ld.global.u32 %a, [%p0]; //!", "null"},
		{"misaligned load", "ld.global.u32 %a, [%at+2]; //!", "not a multiple of 4"},
		{"misaligned vector", "ld.global.v4.u32 {%a, %b, %c, %d}, [%at]; //!", "not a multiple of 16"},
		{"misaligned shared", "st.shared.u32 [%s+1], %t; //!", "not a multiple of 4"},
		{"shared out of bounds", "st.shared.u32 [%s+260], %t; //!", "shared memory"},
		{"parameter out of bounds", "ld.param.u64 %g, [p+8]; //!", "parameter"},
		{"uninitialised", "ld.shared.u32 %a, [%s]; //!", "nothing wrote it"},
		{"half uninitialised", "st.shared.u16 [%s], %t;\n ld.shared.u32 %a, [%s]; //!", "nothing wrote it"},
		{"read after write", "st.shared.u32 [%s], %t;\n xor.b32 %b, %a, 128; mov.u32 %s, space; add.s32 %s, %s, %b;\n bar.sync 0;\n st.shared.u32 [%s], %t; //!\n xor.b32 %b, %a, 0; mov.u32 %s, space; add.s32 %s, %s, %b;\n ld.shared.u32 %a, [%s]; //!",
			"without a barrier"},
		{"write after read", "st.shared.u32 [%s], %t;\n bar.sync 0;\n ld.shared.u32 %b, [%s]; //!\n xor.b32 %b, %a, 128; mov.u32 %s, space; add.s32 %s, %s, %b;\n st.shared.u32 [%s], %t; //!",
			"without a barrier"},
		{"write after write", "st.shared.u32 [space], %t; //!", "without a barrier"},
		{"write by part after write", "st.shared.u16 [space], %t; //!", "without a barrier"},
		{"divergent barrier", "setp.lt.u32 %p, %t, 5;\n @%p bra L;\n bar.sync 0; //!\n L: mov.u32 %a, 1;", "not at this barrier"},
		{"exited threads", "setp.lt.u32 %p, %t, 32;\n @%p ret;\n bar.sync 0; //!", "stuck"},
		{"some exited threads", "setp.lt.u32 %p, %t, 5;\n @%p ret;\n bar.sync 0; //!", "stuck"},
		{"different barriers", "setp.lt.u32 %p, %t, 32;\n @%p bra L;\n bar.sync 1; //!\n bra M;\n L: bar.sync 0; //!\n M:", "stuck"},
		{"shuffle without a thread", "setp.lt.u32 %p, %t, 5;\n @%p bra L;\n shfl.sync.bfly.b32 %a, %t, 1, 31, -1; //!\n L: mov.u32 %a, 1;", "not there"},
		{"shuffle from a thread that is not in the mask", "setp.eq.u32 %p, %t, 5;\n @%p shfl.sync.bfly.b32 %a, %t, 1, 31, 32; //!", "does not take part"},
		{"mma without a thread", "setp.ne.u32 %p, %t, 5;\n @%p mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%a, %b, %c, %d}, {%a, %b}, {%c}, {%a, %b, %c, %d}; //!", "take part"},
		{"ldmatrix without a thread", "st.shared.u32 [%s], %t; st.shared.u32 [%s+256], %t;\n bar.sync 0;\n mov.u32 %s, space; setp.ne.u32 %p, %t, 5;\n @%p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%a}, [%s]; //!",
			"take part"},
		{"cp.async read before the wait", "cp.async.ca.shared.global [%s], [%at], 4;\n cp.async.commit_group;\n ld.shared.u32 %a, [%s]; //!", "cp.async"},
		{"cp.async without a barrier", "cp.async.ca.shared.global [%s], [%at], 4;\n cp.async.wait_all;\n xor.b32 %b, %a, 128; mov.u32 %s, space; add.s32 %s, %s, %b;\n ld.shared.u32 %a, [%s]; //!",
			"shared memory"},
		{"cp.async past the end", "cp.async.ca.shared.global [%s], [%at+4], 4; //!", "words, which has 256"},
		{"trap", "setp.eq.u32 %p, %t, 9;\n @%p trap; //!", "trap"},
		{"vote without a thread", "setp.lt.u32 %p, %t, 5;\n @%p bra L;\n vote.sync.any.pred %q, %p, -1; //!\n L: mov.u32 %a, 1;", "not there"},
	} {
		lines := map[int]bool{}
		for i, s := range strings.Split(small(c.body), "\n") {
			lines[i+1] = strings.Contains(s, "//!")
		}
		for seed := range uint64(4) {
			_, err := runSmall(t, c.body, 0, seed)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
			} else if !lines[e.Line] || e.Kernel != "k" || !strings.HasPrefix(err.Error(), fmt.Sprintf("test.ptx:%d: k, block 0,0,0, thread ", e.Line)) {
				t.Errorf("%s: error %v is at the wrong place", c.name, err)
			}
		}
	}
}

// TestAllowed runs things that look like those mistakes but are correct.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       func(i uint32) uint32
	}{
		{"own words", "st.shared.u32 [%s], %t;\n ld.shared.u32 %a, [%s];\n st.shared.u32 [%s], %a;\n st.global.u32 [%at], %a;", func(i uint32) uint32 { return i }},
		{"other warp's words after a barrier",
			"st.shared.u32 [%s], %t;\n bar.sync 0;\n xor.b32 %b, %a, 128; mov.u32 %s, space; add.s32 %s, %s, %b;\n ld.shared.u32 %a, [%s];\n st.global.u32 [%at], %a;",
			func(i uint32) uint32 { return i ^ 32 }},
		{"neighbours in a word", "shl.b32 %a, %t, 1; mov.u32 %s, space; add.s32 %s, %s, %a;\n st.shared.u16 [%s], %t;\n ld.shared.u16 %b, [%s];\n st.global.u32 [%at], %b;",
			func(i uint32) uint32 { return i }},
		{"barrier of one warp", "setp.lt.u32 %p, %t, 32;\n @%p bra L;\n st.shared.u32 [%s], %t;\n bar.sync 1, 32;\n ld.shared.u32 %b, [%s];\n st.global.u32 [%at], %b;\n L:",
			func(i uint32) uint32 { return i }},
		{"producer and consumer", "setp.lt.u32 %p, %t, 32;\n @%p bra L;\n st.shared.u32 [%s+-128], %t;\n bar.arrive 1, 64;\n bra M;\n L:\n bar.sync 1, 64;\n ld.shared.u32 %b, [%s];\n st.global.u32 [%at], %b;\n M:",
			func(i uint32) uint32 { return i | 32 }},
		{"atomics of several warps", "setp.eq.u32 %p, %t, 0;\n mov.u32 %a, 0;\n @%p st.shared.u32 [space], %a;\n bar.sync 0;\n atom.shared.add.u32 %b, [space], %t;\n red.shared.add.u32 [space], 1;\n bar.sync 0;\n ld.shared.u32 %c, [space];\n st.global.u32 [%at], %c;",
			func(uint32) uint32 { return 63*32 + 64 }},
		{"zero fill", "and.b32 %b, %t, 1; shl.b32 %b, %b, 2;\n cp.async.ca.shared.global [%s], [%at], 4, %b;\n cp.async.commit_group;\n cp.async.wait_group 0;\n ld.shared.u32 %c, [%s];\n st.global.u32 [%at], %c;",
			func(i uint32) uint32 { return i * (i & 1) }},
		{"threads that leave", "setp.ge.u32 %p, %t, 40;\n @%p ret;\n st.global.u32 [%at], %n;", func(i uint32) uint32 {
			if i < 40 {
				return 3
			}
			return i
		}},
		{"generic shared addresses", "cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;\n st.u32 [%g], %t;\n ld.u32 %b, [%g];\n cvta.to.shared.u64 %g, %g;\n ld.shared.u32 %c, [%g];\n add.s32 %b, %b, %c;\n st.u32 [%at], %b;",
			func(i uint32) uint32 { return 2 * i }},
		{"waiting for another warp", "setp.ge.u32 %p, %t, 32;\n @%p bra M;\n L: ld.volatile.global.u32 %b, [%p0+252];\n setp.ne.s32 %p, %b, 5;\n @%p bra L;\n ret;\n M: setp.eq.u32 %p, %t, 63;\n mov.u32 %b, 5;\n @%p st.volatile.global.u32 [%p0+252], %b;",
			func(i uint32) uint32 {
				if i == 63 {
					return 5
				}
				return i
			}},
	} {
		for seed := range uint64(4) {
			got, err := runSmall(t, c.body, 3, seed)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			for i, v := range got {
				if v != c.want(uint32(i)) {
					t.Errorf("%s: thread %d has %d, want %d", c.name, i, v, c.want(uint32(i)))
					break
				}
			}
		}
	}
}

func TestLaunchLimits(t *testing.T) {
	k := parse(t, small("")).Kernel("k")
	good := Launch{Kernel: k, Grid: dim(1), Block: dim(64), Params: make([]byte, 12)}
	if k.ParamBytes != 12 || k.StaticShared != 512 || k.MaxThreads != 64 {
		t.Errorf("kernel %d bytes of parameters, %d shared, %d threads", k.ParamBytes, k.StaticShared, k.MaxThreads)
	}
	for _, c := range []struct {
		name string
		edit func(l *Launch)
		want string
	}{
		{"block", func(l *Launch) { l.Block[0] = 65 }, "65 threads"},
		{"empty", func(l *Launch) { l.Grid[1] = 0 }, "grid"},
		{"parameters", func(l *Launch) { l.Params = l.Params[:8] }, "8 bytes of parameters, wants 12"},
		{"shared", func(l *Launch) { l.Shared = 300 << 10 }, "shared memory"},
	} {
		l := good
		c.edit(&l)
		if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if _, err := good.Run(); err != nil {
		t.Error(err)
	}
}

// TestGlobalRaces: it is noticed that two blocks touch one word, and atomic
// instructions are not taken for a race.
func TestGlobalRaces(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"st.global.u32 [%at], %t;", "writes it too"},
		{"ld.global.u32 %a, [%at];\n mov.u32 %b, %ctaid.x;\n setp.eq.s32 %p, %b, 0;\n @%p st.global.u32 [%at], %a;", "block"},
		{"red.global.add.u32 [%at], 1;", ""},
		{"ld.global.u32 %a, [%at];", ""},
	} {
		var h heap
		buf := h.add("words", make([]byte, 256))
		l := Launch{Kernel: parse(t, small(c.body)).Kernel("k"), Grid: dim(2), Block: dim(64), Params: params(buf.Base, uint32(0)), Memory: h, CheckGlobal: true}
		_, err := l.Run()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: error %v, want %q", c.body, err, c.want)
		}
	}
}
