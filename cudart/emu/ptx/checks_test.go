package ptx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// warp0First is a seed with which warp 0 runs first. Warp 1 then need not wait,
// which takes the interpreter a while.
const warp0First = 0

// inTurn is a kernel body for two warps: one thread of warp 0 executes first, then
// one thread of warp 1 executes second. Warp 1 waits for a flag in memory, which
// orders the two in time but is no barrier; so they can race in one order only, and
// only one check can notice. All words of both memories are written before, and a
// barrier follows.
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

// TestWarpChecks has a case for every check of what warps of one block do to the
// same bytes, in shared and in global memory, word by word of a wide access.
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

// TestChecksOfCopies has a case for each check of the bytes that a cp.async writes,
// and of those that it reads.
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

// TestBlockChecks has a case for every check of what blocks of one launch do to the
// same word. The blocks run one after the other in an order that the seed draws,
// and it depends on that order which check notices.
func TestBlockChecks(t *testing.T) {
	const (
		reader = "setp.eq.u32 %q, %t, 0;\n @%q ld.global.u32 %a, [%p0+8];"
		writer = "setp.eq.u32 %q, %t, 0;\n @%q st.global.u32 [%p0+8], %t;"
	)
	for _, c := range []struct {
		name, first, others string
		wants               []string // each is seen with some seed, and with every seed one of them is
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

// TestWriteAfterManyReaders: after several blocks have read a word, a block that
// writes it is noticed, although it is not remembered which blocks have read it.
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

// TestLimitsOfLaunches tries each limit alone, at its last value and one beyond.
func TestLimitsOfLaunches(t *testing.T) {
	k := parse(t, header+".visible .entry k()\n{\n ret;\n}").Kernel("k")
	bounded := parse(t, small("")).Kernel("k")
	for _, c := range []struct {
		name string
		l    Launch
		want string // "": it is allowed
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
