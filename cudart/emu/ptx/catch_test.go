package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// small returns a PTX kernel of 64 threads that executes body. Its parameters are a pointer p and
// n. It has 128 words of static shared memory, and the thread's number in %t.
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

// runSmall runs small(body) as one block, on a buffer of 64 words that hold their indices.
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

// TestCatches: each mistake of a kernel is an error at the line marked //!, with the wanted words,
// in any order of warps.
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

// TestAllowed: correct kernels that resemble the mistakes of TestCatches run without an error and
// give the right results.
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

// TestGlobalRaces: it is an error if two blocks access one word and one of them writes it, unless
// both use atomic instructions.
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

// warp0First is a seed with which warp 0 runs first. Then warp 1 finds the flag that it waits for
// and need not spin, which is slow in the interpreter.
const warp0First = 0

// inTurn returns a kernel body for two warps: one thread of warp 0 executes first, then one thread
// of warp 1 executes second. Warp 1 waits for a flag in memory. The flag orders the two in time but
// is not a barrier, so they race, always in this order, and exactly one check must find the race.
// Before that, all words of both memories are written, and a barrier follows.
func inTurn(first, second string) string {
	return `st.shared.u32 [%s], %t; st.shared.u32 [%s+256], %t;
	bar.sync 0;
	setp.ge.u32 %p, %t, 32;
	@%p bra M;
	setp.eq.u32 %q, %t, 0;
	@%q ` + first + `;
	mov.u32 %b, 5;
	@%q st.volatile.global.u32 [%p0+252], %b;
	bra N;
	M:
	L: ld.volatile.global.u32 %b, [%p0+252];
	setp.ne.s32 %p, %b, 5;
	@%p bra L;
	setp.eq.u32 %q, %t, 32;
	@%q ` + second + `;
	N:`
}

// TestWarpChecks: the emulator finds every kind of race between warps of a block, in shared and
// global memory, in each word of a wide access.
func TestWarpChecks(t *testing.T) {
	type check struct{ name, first, second, want string }
	const (
		read     = "%s is read without a barrier after warp 0 wrote it"
		rewrite  = "%s is written without a barrier after warp 0 wrote it"
		overRead = "%s is written without a barrier after warp 0 read it"
	)
	const wide = "{%a, %b, %c, %d}"
	var all []check
	for k := range 4 {
		word := fmt.Sprintf("[X+%d]", 32+4*k)
		name := fmt.Sprintf("word %d of 4: ", k)
		at := func(format string) string { return fmt.Sprintf("%d "+format, 32+4*k, "%s") }
		all = append(all,
			check{name + "wide read after write", "st.M.u32 " + word + ", %t", "ld.M.v4.u32 " + wide + ", [X+32]", at(read)},
			check{name + "write after wide read", "ld.M.v4.u32 " + wide + ", [X+32]", "st.M.u32 " + word + ", %t", at(overRead)},
			check{name + "write after wide write", "st.M.v4.u32 [X+32], " + wide, "st.M.u32 " + word + ", %t", at(rewrite)},
			check{name + "wide write after write", "st.M.u32 " + word + ", %t", "st.M.v4.u32 [X+32], " + wide, at(rewrite)},
			check{name + "wide write after read", "ld.M.u32 %a, " + word, "st.M.v4.u32 [X+32], " + wide, at(overRead)},
			check{name + "read after wide write", "st.M.v4.u32 [X+32], " + wide, "ld.M.u32 %a, " + word, at(read)})
	}
	for _, part := range []string{"u16", "u8"} {
		all = append(all,
			check{part + " read after write", "st.M." + part + " [X+10], %t", "ld.M." + part + " %a, [X+10]", "10 " + read},
			check{part + " write after read", "ld.M." + part + " %a, [X+10]", "st.M." + part + " [X+10], %t", "10 " + overRead},
			check{part + " write after write", "st.M." + part + " [X+10], %t", "st.M." + part + " [X+10], %t", "10 " + rewrite},
			check{part + " in a word that is read", "st.M." + part + " [X+10], %t", "ld.M.u32 %a, [X+8]", "8 " + read},
			check{part + " of a word that is written", "ld.M." + part + " %a, [X+10]", "st.M.u32 [X+8], %t", "8 " + overRead},
			check{part + " read beside a write", "st.M." + part + " [X+10], %t", "ld.M." + part + " %a, [X+8]", ""},
			check{part + " write beside a read", "ld.M." + part + " %a, [X+10]", "st.M." + part + " [X+8], %t", ""},
			check{part + " write beside a write", "st.M." + part + " [X+10], %t", "st.M." + part + " [X+8], %t", ""})
	}
	all = append(all,
		check{"read after read", "ld.M.u32 %a, [X+8]", "ld.M.u32 %a, [X+8]", ""},
		check{"write beside a write", "st.M.u32 [X+8], %t", "st.M.u32 [X+12], %t", ""},
		check{"read after atomic", "red.M.add.u32 [X+8], %t", "ld.M.u32 %a, [X+8]", "8 " + read},
		check{"write after atomic", "red.M.add.u32 [X+8], %t", "st.M.u32 [X+8], %t", "8 " + rewrite},
		check{"atomic after read", "ld.M.u32 %a, [X+8]", "red.M.add.u32 [X+8], %t", "8 " + overRead},
		check{"atomic after write", "st.M.u32 [X+8], %t", "red.M.add.u32 [X+8], %t", "8 " + read},
		check{"atomic after atomic", "red.M.add.u32 [X+8], %t", "red.M.add.u32 [X+8], %t", ""})
	for _, space := range []struct{ name, base, place string }{{"shared", "space", "shared memory at offset"}, {"global", "%p0", "words at offset"}} {
		for _, c := range all {
			r := strings.NewReplacer(".M.", "."+space.name+".", "X", space.base)
			want := ""
			if c.want != "" {
				offset, what, _ := strings.Cut(c.want, " ")
				want = fmt.Sprintf(what, space.place+" "+offset)
			}
			_, err := runSmall(t, inTurn(r.Replace(c.first), r.Replace(c.second)), 0, warp0First)
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), ": "+want)) {
				t.Errorf("%s, %s: error %v, want %q", space.name, c.name, err, want)
			}
		}
	}
}

// TestChecksOfCopies: the emulator finds every kind of race with the bytes that a cp.async reads or
// writes.
func TestChecksOfCopies(t *testing.T) {
	copied := "cp.async.ca.shared.global [space+8], [%p0+8], 4"
	for _, c := range []struct{ name, first, second, want string }{
		{"source written", copied, "st.global.u32 [%p0+8], %t", "words at offset 8 is written without a barrier after warp 0 read it"},
		{"destination read", copied, "ld.shared.u32 %a, [space+8]", "shared memory at offset 8 is read while a cp.async writes it: wait_group is missing"},
		{"destination written", copied, "st.shared.u32 [space+8], %t", "shared memory at offset 8 is written while a cp.async writes it"},
		{"part of the destination read", copied, "ld.shared.u16 %a, [space+10]", "shared memory at offset 10 is read while a cp.async writes it: wait_group is missing"},
		{"beside", copied, "st.shared.u32 [space+12], %t", ""},
	} {
		_, err := runSmall(t, inTurn(c.first, c.second), 0, warp0First)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), ": "+c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestBlockChecks: the emulator finds every kind of race between blocks at one word of global
// memory. The blocks run in an order that follows from the seed, and the order decides which check
// must find the race.
func TestBlockChecks(t *testing.T) {
	const (
		reader = "setp.eq.u32 %q, %t, 0;\n @%q ld.global.u32 %a, [%p0+8];"
		writer = "setp.eq.u32 %q, %t, 0;\n @%q st.global.u32 [%p0+8], %t;"
	)
	for _, c := range []struct {
		name, first, others string
		wants               []string // each occurs with some seed; every seed gives one of them
	}{
		{"two that write", writer, writer, []string{"is written, and block 0 of the same launch writes it too", "is written, and block 1 of the same launch writes it too"}},
		{"one reads, one writes", reader, writer, []string{"words at offset 8 is read, and block 1 of the same launch writes it", "words at offset 8 is written, and another block of the same launch reads it"}},
		{"two that read", reader, reader, nil},
	} {
		body := "mov.u32 %b, %ctaid.x;\n setp.eq.s32 %p, %b, 0;\n @%p bra F;\n" + c.others + "\n bra E;\n F:\n" + c.first + "\n E:"
		seen := map[string]bool{}
		for seed := range uint64(16) {
			var h heap
			buf := h.add("words", make([]byte, 256))
			l := Launch{Kernel: parse(t, small(body)).Kernel("k"), Grid: dim(2), Block: dim(64), Params: params(buf.Base, uint32(0)), Memory: h,
				CheckGlobal: true, Threads: 1, Seed: seed}
			_, err := l.Run()
			if (err == nil) != (c.wants == nil) {
				t.Errorf("%s, seed %d: error %v", c.name, seed, err)
				continue
			}
			for _, want := range c.wants {
				if strings.HasSuffix(err.Error(), want) {
					seen[want] = true
				}
			}
		}
		for _, want := range c.wants {
			if !seen[want] {
				t.Errorf("%s: no order of the blocks gives %q", c.name, want)
			}
		}
	}
}

// TestWriteAfterManyReaders: a block's write after several other blocks have read the word is
// found, although the emulator does not record the readers one by one.
func TestWriteAfterManyReaders(t *testing.T) {
	body := "mov.u32 %b, %ctaid.x;\n setp.eq.s32 %p, %b, 2;\n setp.eq.u32 %q, %t, 0;\n @!%q bra E;\n @%p bra F;\n ld.global.u32 %a, [%p0+8];\n bra E;\n F: st.global.u32 [%p0+8], %t;\n E:"
	for seed := range uint64(16) {
		var h heap
		buf := h.add("words", make([]byte, 256))
		l := Launch{Kernel: parse(t, small(body)).Kernel("k"), Grid: dim(3), Block: dim(64), Params: params(buf.Base, uint32(0)), Memory: h,
			CheckGlobal: true, Threads: 1, Seed: seed}
		if _, err := l.Run(); err == nil {
			t.Errorf("seed %d: a word that two blocks read and one writes is no error", seed)
		}
	}
}

// TestLimitsOfLaunches: the last valid value of each limit of a launch is accepted, and the next
// one is an error.
func TestLimitsOfLaunches(t *testing.T) {
	k := parse(t, header+".visible .entry k()\n{\n ret;\n}").Kernel("k")
	bounded := parse(t, small("")).Kernel("k")
	for _, c := range []struct {
		name string
		l    Launch
		want string // "": valid
	}{
		{"threads", Launch{Kernel: k, Grid: dim(1), Block: dim(1024)}, ""},
		{"a thread more", Launch{Kernel: k, Grid: dim(1), Block: dim(1025)}, "1025 threads in a block, at most 1024"},
		{"threads of three dimensions", Launch{Kernel: k, Grid: dim(1), Block: [3]uint32{32, 8, 4}}, ""},
		{"a row of threads more", Launch{Kernel: k, Grid: dim(1), Block: [3]uint32{32, 11, 3}}, "1056 threads"},
		{"what the kernel was compiled for", Launch{Kernel: bounded, Grid: dim(1), Block: dim(64), Params: make([]byte, 12)}, ""},
		{"more than it was compiled for", Launch{Kernel: bounded, Grid: dim(1), Block: dim(96), Params: make([]byte, 12)}, "96 threads in a block, at most 64"},
		{"no block", Launch{Kernel: k, Grid: [3]uint32{1, 0, 1}, Block: dim(1)}, "launched with grid"},
		{"no thread", Launch{Kernel: k, Grid: dim(1), Block: [3]uint32{1, 1, 0}}, "launched with grid"},
		{"rows of blocks", Launch{Kernel: k, Grid: [3]uint32{1, 65535, 1}, Block: dim(1)}, ""},
		{"a row of blocks more", Launch{Kernel: k, Grid: [3]uint32{1, 65536, 1}, Block: dim(1)}, "is too large"},
		{"a layer of blocks more", Launch{Kernel: k, Grid: [3]uint32{1, 1, 65536}, Block: dim(1)}, "is too large"},
		{"a column of blocks more", Launch{Kernel: k, Grid: [3]uint32{1 << 31, 1, 1}, Block: dim(1)}, "is too large"},
		{"blocks in all", Launch{Kernel: k, Grid: [3]uint32{65538, 65535, 1}, Block: dim(1)}, "too many for the emulator"},
		{"parameters", Launch{Kernel: bounded, Grid: dim(1), Block: dim(64), Params: make([]byte, 16)}, "16 bytes of parameters, wants 12"},
		{"shared memory", Launch{Kernel: k, Grid: dim(1), Block: dim(32), Shared: 227 << 10}, ""},
		{"a byte of shared memory more", Launch{Kernel: k, Grid: dim(1), Block: dim(32), Shared: 227<<10 + 1}, "bytes of shared memory"},
		{"static and dynamic shared memory", Launch{Kernel: bounded, Grid: dim(1), Block: dim(64), Params: make([]byte, 12), Shared: 227<<10 - 511}, "beside 512 static ones"},
		{"negative shared memory", Launch{Kernel: k, Grid: dim(1), Block: dim(32), Shared: -1}, "shared memory"},
	} {
		_, err := c.l.Run()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		var e *Error
		if errors.As(err, &e) {
			t.Errorf("%s: the kernel ran: %v", c.name, err)
		}
	}
}
