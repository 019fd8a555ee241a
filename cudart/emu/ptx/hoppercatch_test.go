package ptx

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// hopperSmall is a kernel for two warpgroups with 16 KiB of shared memory, tiles A and B of 64 rows of 64 bf16 with a swizzle of
// 128 bytes, and three mbarriers behind them: ONE and ALSO for one arrival, TWO for two. In bodies
//
//	FILL          all threads store zeros in both tiles
//	GROUP         threads of the second warpgroup go to E, the end
//	LOAD(x,b)     copies the tensor to offset x, with mbarrier b
//	WAIT(b,n)     waits for parity n of mbarrier b
//	MUL, MULA     multiplies 16 columns, N = 16: A from shared memory, or from registers %a0 to %a3; the sums are %d0 to %d7
//	OPEN, CLOSE   wgmma.fence; wgmma.commit_group and wgmma.wait_group 0
//	ONLY          before a statement: only thread 0 executes it
func hopperSmall(body string) string {
	loop := 0
	wait := func(b, parity string) string {
		loop++
		return fmt.Sprintf("W%d: mbarrier.try_wait.parity.shared::cta.b64 %%q, [%s], %s; @!%%q bra W%d;", loop, b, parity, loop)
	}
	for strings.Contains(body, "WAIT(") {
		before, rest, _ := strings.Cut(body, "WAIT(")
		args, after, _ := strings.Cut(rest, ")")
		b, parity, _ := strings.Cut(args, ",")
		body = before + wait(b, parity) + after
	}
	for strings.Contains(body, "LOAD(") {
		before, rest, _ := strings.Cut(body, "LOAD(")
		args, after, _ := strings.Cut(rest, ")")
		x, b, _ := strings.Cut(args, ",")
		body = before + fmt.Sprintf("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [space+%s], [%%map, {0, 0}], [%s];", x, b) + after
	}
	const sums = "{%d0,%d1,%d2,%d3,%d4,%d5,%d6,%d7}"
	fill := ""
	for i := range 4 {
		fill += fmt.Sprintf("st.shared.v4.b32 [%%s+%d], {%%z,%%z,%%z,%%z};", 4096*i)
	}
	body = strings.NewReplacer("FILL;", fill, "GROUP;", "@!%first bra E;", "ONLY", "@%zero", "ALSO", "space+16392", "ONE", "space+16384", "TWO", "space+16400",
		"OPEN;", "wgmma.fence.sync.aligned;", "CLOSE;", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
		"MULA;", "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "+sums+", {%a0,%a1,%a2,%a3}, %db, %q, 1, 1, 0;",
		"MUL;", "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "+sums+", %da, %db, %q, 1, 1, 0, 0;").Replace(body)
	a := tile{0, 64, 128, false}
	b := tile{8192, 64, 128, false}
	return hopperHeader + fmt.Sprintf(`.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p)
.maxntid 384, 1, 1
{
	.reg .pred %%p, %%q, %%zero, %%first;
	.reg .b32 %%t, %%x, %%y, %%z, %%s, %%a<4>;
	.reg .f32 %%d<16>, %%f;
	.reg .b64 %%map, %%p0, %%da, %%db, %%state, %%r;
	.shared .align 1024 .b8 space[16896];
	mov.u32 %%t, %%tid.x;
	setp.eq.u32 %%zero, %%t, 0;
	setp.lt.u32 %%first, %%t, 128;
	setp.lt.u32 %%q, %%t, 0;
	mov.u32 %%z, 0; mov.u32 %%s, space; mad.lo.u32 %%s, %%t, 16, %%s;
	mov.b64 %%map, m; cvta.param.u64 %%map, %%map;
	ld.param.u64 %%p0, [p];
	mov.b64 %%da, %d; mov.b64 %%db, %d;
	@%%zero mbarrier.init.shared::cta.b64 [space+16384], 1;
	@%%zero mbarrier.init.shared::cta.b64 [space+16392], 1;
	@%%zero mbarrier.init.shared::cta.b64 [space+16400], 2;
	fence.mbarrier_init.release.cluster;
	bar.sync 0;
`, a.descriptor(0), b.descriptor(0)) + body + "\nE: ret;\n}"
}

// runHopperSmall runs hopperSmall(body) on so many threads and a tensor of 64 rows of 64 ones.
func runHopperSmall(t *testing.T, body string, threads uint32, seed uint64) error {
	t.Helper()
	var h heap
	data := make([]byte, 8192)
	for i := range 4096 {
		data[2*i], data[2*i+1] = 0x80, 0x3f
	}
	buf := h.add("ones", data)
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	k := parse(t, hopperSmall(body)).Kernel("k")
	l := Launch{Kernel: k, Grid: dim(1), Block: dim(threads), Memory: h, Seed: seed, CheckGlobal: true, Params: append(m[:], params(buf.Base)...)}
	_, err := l.Run()
	return err
}

// ready has both tiles filled, and seen by asynchronous work.
const ready = "FILL; fence.proxy.async; bar.sync 0; "

// hopperMistakes are reported at the line with the mark //!, with the words wanted, in whatever order warps run and copies land.
var hopperMistakes = []struct{ name, body, want string }{
	// Between the proxies.
	{"stored, no fence.proxy.async", "FILL; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;", "is read asynchronously without a fence.proxy.async after warp"},
	{"fence.proxy.async before the store", "fence.proxy.async; FILL; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;", "is read asynchronously without a fence.proxy.async after warp"},
	{"fence.proxy.async of one thread of each warp", "FILL; and.b32 %x, %t, 31; setp.eq.u32 %p, %x, 0; @%p fence.proxy.async; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;", "without a fence.proxy.async"},
	{"fence.proxy.async of one thread after cp.async", "FILL; fence.proxy.async; and.b32 %x, %t, 127; shl.b32 %x, %x, 4; cvt.u64.u32 %r, %x; add.u64 %r, %p0, %r; cp.async.ca.shared.global [%s], [%r], 16; fence.proxy.async; cp.async.wait_all; and.b32 %x, %t, 31; setp.eq.u32 %p, %x, 0; @%p fence.proxy.async; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;",
		"without a fence.proxy.async"},
	{"fence.proxy.async behind the barrier", "FILL; bar.sync 0; fence.proxy.async; GROUP; OPEN;\n MUL; //!\n CLOSE;", "is read asynchronously without a"},
	{"fenced, no barrier", "FILL; fence.proxy.async; GROUP; OPEN;\n MUL; //!\n CLOSE;", "shared memory at offset"},
	{"nothing stored", "GROUP; OPEN;\n MUL; //!\n CLOSE;", "nothing wrote it"},
	{"copied out, no fence", "FILL; bar.sync 0;\n ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 8192; //!\n cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
		"is read asynchronously without a fence.proxy.async"},
	{"copied over stores, no fence", "FILL; bar.sync 0; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(0,ONE) //!\n WAIT(ONE,0)",
		"is written asynchronously without a fence.proxy.async"},
	{"copied over what a warp reads", ready + "setp.lt.u32 %p, %t, 32; @!%p bra M; V: ld.volatile.global.u32 %x, [%p0]; setp.ne.u32 %p, %x, 5; @%p bra V; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(0,ONE) //!\n bra E; M: setp.lt.u32 %p, %t, 64; @!%p bra E; ld.shared.b32 %x, [%s]; setp.eq.u32 %p, %t, 32; @%p st.volatile.global.u32 [%p0], 5;",
		"is written without a barrier after warp 1 read it"},

	// What copies bring.
	{"copied, not waited for", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE)\n ONLY ld.shared.b32 %x, [space]; //!\n WAIT(ONE,0)",
		"is read while a bulk copy writes it, and phase 0 of the mbarrier at offset 16384 was not waited for"},
	{"copied, another barrier waited for", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ALSO], 8192; ONLY LOAD(8192,ALSO) WAIT(ALSO,0)\n ONLY ld.shared.b32 %x, [space+16]; //!\n WAIT(ONE,0)",
		"offset 16 is read while a bulk copy writes it, and phase 0 of the mbarrier at offset 16384"},
	{"copied, multiplied at once", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16384; ONLY LOAD(0,ONE) ONLY LOAD(8192,ONE) bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;",
		"is read while a bulk copy writes it"},
	{"copied and overwritten", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) bar.sync 0;\n ONLY st.shared.b32 [space], %z; //!\n WAIT(ONE,0)",
		"is written while a bulk copy writes it"},
	{"copied twice", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16384; ONLY LOAD(0,ONE)\n ONLY LOAD(0,ONE) //!\n WAIT(ONE,0)", "is written while a bulk copy writes it"},
	{"stored after an arrival", "ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; ONLY st.shared.b32 [space], %z; WAIT(ONE,0) @%zero bra E;\n ld.shared.b32 %x, [space]; //!", "shared memory at offset 0 is read"},
	{"never waited for", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(0,ONE) //!", "the block ends and nothing waited for this copy"},

	// Registers of products.
	{"sum read too early", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned;\n mov.f32 %f, %d0; //!\n wgmma.wait_group.sync.aligned 0;",
		"register %d0 is touched while wgmma.mma_async at line"},
	{"sum written too early", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned;\n mov.f32 %d7, 0f00000000; //!\n wgmma.wait_group.sync.aligned 0;", "register %d7 is touched while"},
	{"not committed", ready + "GROUP; OPEN; MUL; wgmma.wait_group.sync.aligned 0;\n mov.f32 %f, %d0; //!\n CLOSE;", "register %d0 is touched while"},
	{"an older group waited for", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;\n mov.f32 %f, %d0; //!\n CLOSE;", "register %d0 is touched while"},
	{"A written too early", ready + "GROUP; mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; OPEN; MULA; wgmma.commit_group.sync.aligned;\n mov.b32 %a3, 0; //!\n wgmma.wait_group.sync.aligned 0;",
		"register %a3 is touched while wgmma.mma_async at line"},
	{"no wgmma.fence", ready + "GROUP;\n MUL; //!\n CLOSE;", "wgmma.fence is missing before the first"},
	{"sum written after wgmma.fence", ready + "GROUP; OPEN; mov.f32 %d3, 0f00000000;\n MUL; //!\n CLOSE;", "register %d3 was touched after the last wgmma.fence"},
	{"sum read between products", ready + "GROUP; OPEN; MUL; CLOSE; mov.f32 %f, %d3;\n MUL; //!\n CLOSE;", "register %d3 was touched after the last wgmma.fence"},
	{"A written after wgmma.fence", ready + "GROUP; OPEN; mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0;\n MULA; //!\n CLOSE;", "register %a0 was touched after the last wgmma.fence"},
	{"sums of another shape", ready + "GROUP; OPEN; MUL;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0,%d1,%d2,%d3}, %da, %db, %q, 1, 1, 0, 0; //!\n CLOSE;", "register %d0 is a sum of wgmma.mma_async at line"},
	{"sums as A", ready + "GROUP; OPEN; MUL;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d8,%d9,%d10,%d11}, {%d0,%d1,%d2,%d3}, %db, %q, 1, 1, 0; //!\n CLOSE;", "register %d0 is A, and wgmma.mma_async at line"},
	{"A as sums", ready + "GROUP; OPEN; MULA;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%a0,%a1,%a2,%a3}, %da, %db, %q, 1, 1, 0, 0; //!\n CLOSE;", "register %a0 is a sum, and wgmma.mma_async at line"},
	{"ended before its products", ready + "GROUP; OPEN;\n MUL; //!\n wgmma.commit_group.sync.aligned;", "ends while this product is under way"},

	// Operands of products.
	{"operand overwritten", ready + "@!%first bra M; OPEN; MUL; wgmma.commit_group.sync.aligned; bar.sync 1, 256; wgmma.wait_group.sync.aligned 0; bra E; M: bar.sync 1, 256;\n st.shared.b32 [%s+-2048], %z; //!",
		"reads it: wgmma.wait_group is missing"},
	{"operand overwritten by its own warpgroup", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; bar.sync 1, 128;\n st.shared.b32 [%s], %z; //!\n wgmma.wait_group.sync.aligned 0;", "reads it: wgmma.wait_group is missing"},
	{"operand overwritten by a copy", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(8192,ONE) //!\n wgmma.wait_group.sync.aligned 0;",
		"reads it: wgmma.wait_group is missing"},
	{"operand overwritten without a barrier", ready + "@!%first bra M; OPEN; MUL; CLOSE; bar.sync 1, 128; ONLY st.volatile.global.u32 [%p0], 5; bra E; M: setp.lt.u32 %p, %t, 160; @!%p bra E; V: ld.volatile.global.u32 %x, [%p0]; setp.ne.u32 %p, %x, 5; @%p bra V;\n st.shared.b32 [%s+-2048], %z; //!",
		"shared memory at offset 0 is written without a barrier after asynchronous work of warp 0 read it"},
	{"what is copied out overwritten", ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 8192;\n cp.async.bulk.commit_group; bar.sync 0;\n st.shared.b32 [%s], %z; //!\n cp.async.bulk.wait_group 0;",
		"cp.async.bulk.wait_group is missing"},
	{"an older copy out waited for", ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0+64], [space+64], 64; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group.read 1; bar.sync 0;\n ONLY st.shared.b32 [space+64], %z; //!\n ONLY cp.async.bulk.wait_group 0;",
		"cp.async.bulk.wait_group is missing"},
	{"copying out when the block ends", ready + "\n ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 8192; //!\n cp.async.bulk.commit_group;", "the block ends while this copy reads its shared memory"},

	// mbarriers.
	{"an arrival too many", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16;\n ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; //!", "1 arrivals at the mbarrier at offset 16384, whose phase 0 waits for 0 more of 1, and for 16 bytes"},
	{"an arrival for too many", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [TWO], 3; //!", "3 arrivals at the mbarrier at offset 16400, whose phase 0 waits for 2 more of 2"},
	{"more bytes expected", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8208; ONLY LOAD(0,ONE)\n WAIT(ONE,0) //!", "waits for the mbarrier at offset 16384 (phase 0 lacks 0 of 1 arrivals and 16 bytes)"},
	{"fewer bytes expected", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8176;\n ONLY LOAD(0,ONE) //!\n WAIT(ONE,0)", "16 bytes more than expected have come to the mbarrier at offset 16384"},
	{"no bytes expected", "ONLY LOAD(0,ONE)\n ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; //!\n WAIT(ONE,0)", "expected"},
	{"too few arrivals", "ONLY mbarrier.arrive.shared::cta.b64 _, [TWO];\n WAIT(TWO,0) //!", "waits for the mbarrier at offset 16400 (phase 0 lacks 1 of 2 arrivals and 0 bytes); warp"},
	{"a phase that is over twice", "ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; bar.sync 0;\n WAIT(ONE,0) //!", "comes too late: that phase and the next one are over"},
	{"no such parity", "\n WAIT(ONE,2) //!", "parity 2"},
	{"made twice", "\n ONLY mbarrier.init.shared::cta.b64 [ONE], 1; //!", "is made again, and is still there since line"},
	{"made for nobody", "\n ONLY mbarrier.init.shared::cta.b64 [space+16408], 0; //!", "an mbarrier for 0 arrivals"},
	{"ended while a copy comes", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE)\n ONLY mbarrier.inval.shared::cta.b64 [ONE]; //!", "to the mbarrier at offset 16384 is under way"},
	{"not made", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [space+16408]; //!", "there is no mbarrier at offset 16408"},
	{"made, no barrier", "setp.ge.u32 %p, %t, 32; @%p bra M; ONLY mbarrier.init.shared::cta.b64 [space+16408], 1; ONLY st.volatile.global.u32 [%p0], 5; bra E; M: setp.eq.u32 %p, %t, 32; @!%p bra E; V: ld.volatile.global.u32 %x, [%p0]; setp.ne.u32 %p, %x, 5; @%p bra V;\n mbarrier.arrive.shared::cta.b64 _, [space+16408]; //!",
		"the mbarrier at offset 16408 is used without a barrier after warp 0 made it"},
	{"made, not shown to copies", "ONLY mbarrier.init.shared::cta.b64 [space+16408], 1; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [space+16408], 8192;\n ONLY LOAD(0,space+16408) //!",
		"no fence.mbarrier_init or fence.proxy.async after warp 0 made it"},
	{"read as memory", "\n ONLY ld.shared.b64 %r, [ONE]; //!", "which is an mbarrier"},
	{"read as a part of more", "ONLY st.shared.v2.b32 [space+16416], {%z,%z}; ONLY mbarrier.init.shared::cta.b64 [space+16424], 1;\n ONLY ld.shared.v4.b32 {%a0,%a1,%a2,%a3}, [space+16416]; //!", "which is an mbarrier"},
	{"written as memory", "\n ONLY st.shared.b64 [ONE], %r; //!", "which is an mbarrier: mbarrier.inval is missing"},
	{"in part outside", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [space+16896]; //!", "an mbarrier at offset 16896 of the block's 16896 bytes"},
	{"misaligned", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [space+16388]; //!", "offset 16388, which is not a multiple of 8"},
	{"too many bytes", "ONLY mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [ONE], 1048000;\n ONLY mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [ONE], 1000; //!", "expects 1049000 bytes"},

	// Descriptors and tensor maps.
	{"operand outside of shared memory", ready + "GROUP; add.u64 %db, %db, 512; OPEN;\n MUL; //!\n CLOSE;", "B: descriptor 0x4000004002000400 reaches offset"},
	{"operand beyond 256 KiB", ready + "GROUP; add.u64 %da, %da, 16384; OPEN;\n MUL; //!\n CLOSE;", "A: descriptor 0x4000004002004000 has bits that mean nothing"},
	{"operand in a row of the pattern", ready + "GROUP; add.u64 %da, %da, 8; OPEN;\n MUL; //!\n CLOSE;", "begins at offset 128, which is in row 1 of the swizzle's pattern of 1024 bytes"},
	{"stride beside the pattern", ready + "GROUP; mov.b64 %r, 0x800000000; sub.u64 %da, %da, %r; OPEN;\n MUL; //!\n CLOSE;", "A: the stride byte offset of 896 is no multiple of the swizzle's pattern"},
	{"descriptors that differ in a warp", ready + "GROUP; and.b32 %x, %t, 1; cvt.u64.u32 %r, %x; add.u64 %da, %da, %r; OPEN;\n MUL; //!\n CLOSE;", "in thread 0 of the warp"},
	{"descriptors that differ between warps", ready + "GROUP; shr.u32 %x, %t, 5; shl.b32 %x, %x, 1; cvt.u64.u32 %r, %x; add.u64 %da, %da, %r; OPEN;\n MUL; //!\n CLOSE;", "of the same warpgroup has"},
	{"no tensor map", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; mov.u64 %map, %p0;\n ONLY LOAD(0,ONE) //!", "there is no tensor map at this address"},
	{"tensor map of another rank", "\n ONLY cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%map, {0, 0, 0}], [ONE]; //!", "a tensor map of 2 dimensions in a copy of 3"},
	{"tensor to a misaligned place", "\n ONLY LOAD(64,ONE) //!", "offset 64 of shared memory, which is not a multiple of 128"},
	{"tensor beyond shared memory", "\n ONLY LOAD(8832,ONE) //!", "8192 bytes at offset 8832 of the block's 16896 bytes"},
	{"copy beyond a buffer", "\n ONLY cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%p0+16], 8192, [ONE]; //!", "ones, which has 8192"},
	{"copy of 8 bytes", "\n ONLY cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%p0], 8, [ONE]; //!", "all must be multiples of 16"},

	// Warpgroups.
	{"product without a thread", ready + "GROUP; setp.ne.u32 %p, %t, 70; OPEN;\n @%p MUL; //!\n CLOSE;", "the thread does not take part in wgmma"},
	{"product without a warp", ready + "GROUP; OPEN; setp.lt.u32 %p, %t, 96; @!%p bra E;\n MUL; //!\n CLOSE;", "has ended without executing this"},
	{"other products in a warp", ready + "GROUP; OPEN; setp.lt.u32 %p, %t, 96; @!%p bra M;\n MUL; //!\n bra N; M:\n MUL; //!\n N: CLOSE;", "of the same warpgroup has executed the instruction of line"},
	{"scale-d that differs", ready + "GROUP; setp.lt.u32 %q, %t, 32; OPEN;\n MUL; //!\n CLOSE;", "scale-d differs from that of warp"},
	{"scale-d that differs in a warp", ready + "GROUP; setp.lt.u32 %q, %t, 16; OPEN;\n MUL; //!\n CLOSE;", "threads of the warp differ in scale-d"},

	// Registers for warpgroups: those of a kernel for 384 threads begin with 168 each.
	{"more registers by dec", "setmaxnreg.dec.sync.aligned.u32 160;\n setmaxnreg.dec.sync.aligned.u32 168; //!", "setmaxnreg.dec to 168 registers, and each thread has 160"},
	{"fewer registers by inc", "\n setmaxnreg.inc.sync.aligned.u32 160; //!", "setmaxnreg.inc to 160 registers, and each thread has 168"},
	{"registers that nobody gives back", "@!%first bra M; setmaxnreg.dec.sync.aligned.u32 160; bra E; M:\n setmaxnreg.inc.sync.aligned.u32 184; //!", "waits for 184 registers a thread, of which the block has"},
	{"setmaxnreg without a thread", "setp.ne.u32 %p, %t, 70;\n @%p setmaxnreg.dec.sync.aligned.u32 160; //!", "the thread does not take part in setmaxnreg"},
	{"setmaxnreg of other warps", "setp.lt.u32 %p, %t, 32; @!%p bra M;\n setmaxnreg.dec.sync.aligned.u32 160; //!\n bra E; M:\n setmaxnreg.dec.sync.aligned.u32 160; //!", "of the same warpgroup has executed the instruction of line"},
}

// TestHopperCatches tries all mistakes.
func TestHopperCatches(t *testing.T) {
	for _, c := range hopperMistakes {
		lines := map[int]bool{}
		for i, s := range strings.Split(hopperSmall(c.body), "\n") {
			lines[i+1] = strings.Contains(s, "//!")
		}
		seeds := []uint64{0, 1, 2, 3, 4, 5}
		if strings.Contains(c.body, "volatile") { // with this one the warp that waits comes last, as waiting takes the interpreter a while
			seeds = []uint64{7}
		}
		for _, seed := range seeds {
			err := runHopperSmall(t, c.body, 256, seed)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, seed %d: error %v, want one with %q", c.name, seed, err, c.want)
			} else if !lines[e.Line] || e.Kernel != "k" {
				t.Errorf("%s: error %v is at the wrong place", c.name, err)
			}
		}
	}
}

// TestHopperAllowed runs what looks like these mistakes but is correct.
func TestHopperAllowed(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"stored, fenced and multiplied", ready + "GROUP; OPEN; MUL; MUL; CLOSE; mov.f32 %f, %d0;"},
		{"stored and fenced by one thread", "ONLY st.shared.v4.b32 [space], {%z,%z,%z,%z}; ONLY fence.proxy.async.shared::cta; ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 16; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group.read 0;"},
		{"copied by cp.async, fenced and multiplied", "FILL; and.b32 %x, %t, 127; shl.b32 %x, %x, 4; cvt.u64.u32 %r, %x; add.u64 %r, %p0, %r; cp.async.ca.shared.global [%s], [%r], 16; cp.async.wait_all; fence.proxy.async; bar.sync 0; GROUP; OPEN; MUL; CLOSE;"},
		{"copied, waited for and multiplied", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16384; ONLY LOAD(0,ONE) ONLY LOAD(8192,ONE) WAIT(ONE,0) GROUP; OPEN; MUL; CLOSE;"},
		{"one warp has waited for all", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) setp.lt.u32 %p, %t, 32; @!%p bra M; WAIT(ONE,0) M: bar.sync 0; ld.shared.b32 %x, [%s];"},
		{"one warp has waited for one that arrives elsewhere", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) setp.lt.u32 %p, %t, 32; @!%p bra M; WAIT(ONE,0) ONLY mbarrier.arrive.shared::cta.b64 _, [ALSO]; M: WAIT(ALSO,0) ld.shared.b32 %x, [%s];"},
		{"expected after the copy began", "ONLY LOAD(0,ONE) ONLY mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [ONE], 8192; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; WAIT(ONE,0)"},
		{"copied in two phases", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) WAIT(ONE,0) ld.shared.b32 %x, [space]; bar.sync 0; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) WAIT(ONE,1) ld.shared.b32 %x, [space];"},
		{"a phase before the first is over", "WAIT(ONE,1)"},
		{"waiting for a state", "ONLY mbarrier.arrive.release.cta.shared::cta.b64 %state, [ONE]; V: @%zero mbarrier.test_wait.acquire.cta.shared::cta.b64 %q, [ONE], %state; @!%zero bra E; @!%q bra V;"},
		{"two arrivals at once", "ONLY mbarrier.arrive.shared::cta.b64 _, [TWO], 2; WAIT(TWO,0)"},
		{"generic addresses", "mov.u32 %x, space; cvt.u64.u32 %r, %x; cvta.shared.u64 %r, %r; ONLY mbarrier.arrive.b64 %state, [%r+16384]; V: mbarrier.try_wait.parity.b64 %q, [%r+16384], 0, 1000; @!%q bra V;"},
		{"memory that was an mbarrier", "ONLY mbarrier.inval.shared::cta.b64 [ONE]; ONLY st.shared.b64 [ONE], %p0; ONLY ld.shared.b64 %r, [ONE];"},
		{"an mbarrier made again", "ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; ONLY mbarrier.inval.shared::cta.b64 [ONE]; ONLY mbarrier.init.shared::cta.b64 [ONE], 1; bar.sync 0; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; WAIT(ONE,0)"},
		{"a wait that is given up", "setp.ge.u32 %p, %t, 32; @%p bra M; mbarrier.try_wait.parity.shared::cta.b64 %q, [ONE], 0; ONLY mbarrier.arrive.shared::cta.b64 _, [ALSO]; bra E; M: WAIT(ALSO,0)"},
		{"copied out and overwritten", ready + "ONLY cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [space]; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; bar.sync 0; st.shared.b32 [%s], %z;"},
		{"fenced by one half of the warp, then by the other", "FILL; and.b32 %x, %t, 16; setp.eq.u32 %p, %x, 0; @%p fence.proxy.async; @!%p fence.proxy.async; bar.sync 0; GROUP; OPEN; MUL; CLOSE;"},
		{"made by one thread, stored by another", "bar.sync 0; @!%first bra E; ONLY mbarrier.init.shared::cta.b64 [space+16408], 1; setp.eq.u32 %p, %t, 5; @%p st.shared.v4.b32 [space], {%z,%z,%z,%z}; @%p fence.proxy.async; @%p cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 16; @%p cp.async.bulk.commit_group; @%p cp.async.bulk.wait_group 0;"},
		{"stored by all, then by one", ready + "ONLY st.shared.v4.b32 [space], {%z,%z,%z,%z}; ONLY fence.proxy.async; ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 16; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group 0;"},
		{"stored before an arrival", "ONLY st.shared.b32 [space], %z; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; WAIT(ONE,0) ld.shared.b32 %x, [space];"},
		{"a state whose phase another warp ends", "setp.eq.u32 %p, %t, 32; @%p st.shared.b32 [space], %z; @%p mbarrier.arrive.shared::cta.b64 _, [TWO]; @!%zero bra E; mbarrier.arrive.shared::cta.b64 %state, [TWO]; V: mbarrier.test_wait.shared::cta.b64 %q, [TWO], %state; @!%q bra V; ld.shared.b32 %x, [space];"},
		{"copied out and read back", ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group 0; ONLY ld.global.b32 %x, [%p0]; setp.ne.u32 %p, %x, 0; @!%zero bra E; @%p trap;"},
		{"registers given and taken", "@%first bra M; setmaxnreg.dec.sync.aligned.u32 96; bra E; M: setmaxnreg.inc.sync.aligned.u32 240;"},
		{"an older group waited for", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d8,%d9,%d10,%d11}, %da, %db, %q, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; mov.f32 %f, %d0; wgmma.wait_group.sync.aligned 0; mov.f32 %f, %d8;"},
		{"other things that order little", "fence.proxy.async.global; fence.acq_rel.cta;"},
	} {
		for seed := range uint64(6) {
			if err := runHopperSmall(t, c.body, 256, seed); err != nil {
				t.Errorf("%s, seed %d: %v", c.name, seed, err)
			}
		}
	}
}

// TestPartialWarpgroup: a block of five warps has one warpgroup and a warp.
func TestPartialWarpgroup(t *testing.T) {
	body := strings.ReplaceAll(ready, "FILL", "@%first bra A; bra B; A: FILL; st.shared.v4.b32 [%s+2048], {%z,%z,%z,%z}; st.shared.v4.b32 [%s+6144], {%z,%z,%z,%z}; st.shared.v4.b32 [%s+10240], {%z,%z,%z,%z}; st.shared.v4.b32 [%s+14336], {%z,%z,%z,%z}; B:")
	if err := runHopperSmall(t, body+"GROUP; OPEN; MUL; CLOSE;", 160, 0); err != nil {
		t.Error(err)
	}
	err := runHopperSmall(t, body+"OPEN; MUL; CLOSE;", 160, 0)
	if err == nil || !strings.Contains(err.Error(), "wgmma by a warpgroup that has only 32 threads") {
		t.Error(err)
	}
}

// TestBulkStoresEnd: what is copied out is there when the block has ended, though it was waited for only until it was read.
func TestBulkStoresEnd(t *testing.T) {
	var h heap
	buf := h.add("ones", bytes.Repeat([]byte{1}, 8192))
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	text := hopperSmall(ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;")
	l := Launch{Kernel: parse(t, text).Kernel("k"), Grid: dim(1), Block: dim(256), Memory: h, Params: append(m[:], params(buf.Base)...)}
	touched, err := l.Run()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Data[:65], append(make([]byte, 64), 1)) {
		t.Errorf("%v", buf.Data[:65])
	}
	if len(touched) != 1 || touched[0].WriteFrom != 0 || touched[0].WriteTo != 64 {
		t.Errorf("touched %+v", touched)
	}
}

// TestBulkRaces: two blocks that copy out to the same place.
func TestBulkRaces(t *testing.T) {
	var h heap
	buf := h.add("ones", make([]byte, 8192))
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	text := hopperSmall(ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;")
	l := Launch{Kernel: parse(t, text).Kernel("k"), Grid: dim(2), Block: dim(256), Memory: h, CheckGlobal: true, Params: append(m[:], params(buf.Base)...)}
	if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "of the same launch writes it too") {
		t.Error(err)
	}
}

// TestRegistersAtStart: as ptxas gives them out.
func TestRegistersAtStart(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, ".maxntid 384, 1, 1": 168, ".maxntid 128, 2": 256, ".maxntid 160": 256, ".maxntid 128, 1, 1\n.minnctapersm 3": 168, ".maxntid 1024\n.maxnreg 56": 56, ".reqntid 512, 1, 1": 128,
	} {
		k := parse(t, hopperHeader+".visible .entry k()\n"+text+"\n{\nret;\n}").Kernel("k")
		if got := k.registersAtStart(); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	k := parse(t, hopperHeader+".visible .entry k()\n{\nsetmaxnreg.dec.sync.aligned.u32 24;\nret;\n}").Kernel("k")
	l := Launch{Kernel: k, Grid: dim(1), Block: dim(128)}
	if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "setmaxnreg in a kernel without .maxnreg or .maxntid") {
		t.Error(err)
	}
}

// TestDescriptors: what is wrong with a descriptor by itself, and where rows lie of a matrix that begins within the swizzle's pattern.
func TestDescriptors(t *testing.T) {
	const swizzled = 1 << 62
	for d, want := range map[uint64]string{
		swizzled | 3<<49 | 64<<32 | 3*8: "",
		swizzled | 2<<49 | 64<<32 | 3*8: "has base offset 2 and begins at offset 384, where it is 3",
		1<<49 | 64<<32:                  "has a base offset and no swizzle",
		1 << 14:                         "has bits that mean nothing",
		1 << 46:                         "has bits that mean nothing",
		3<<62 | 2:                       "begins at offset 32, which is in row 1 of the swizzle's pattern of 256 bytes",
		2<<62 | 4:                       "begins at offset 64, which is in row 1 of the swizzle's pattern of 512 bytes",
	} {
		if _, err := tileOf(d); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%#x: %v, want %q", d, err, want)
		}
	}
	o, _ := tileOf(swizzled | 3<<49 | 64<<32 | 3*8)
	for row := range uint32(5) { // those before the pattern's end
		if got, want := o.along(row, 1), 384+row*128+16^row<<4; got != want {
			t.Errorf("row %d lies at %d, want %d", row, got, want)
		}
	}
	across, _ := tileOf(swizzled | 64<<32 | 8<<16)
	if err := across.fits(64, true); err != nil {
		t.Error(err)
	}
	if err := across.fits(72, true); err == nil || !strings.Contains(err.Error(), "the leading byte offset of 128") {
		t.Error(err)
	}
}

// TestLargerBlocks: what a block has of its shared memory is made anew for one with more warps.
func TestLargerBlocks(t *testing.T) {
	k := parse(t, hopperSmall("st.shared.b32 [%s+8192], %z; ld.shared.b32 %x, [%s+8192];")).Kernel("k")
	var h heap
	buf := h.add("ones", make([]byte, 8192))
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	for _, threads := range []uint32{32, 384, 64} {
		l := Launch{Kernel: k, Grid: dim(1), Block: dim(threads), Memory: h, Threads: 1, Params: append(m[:], params(buf.Base)...)}
		if _, err := l.Run(); err != nil {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}
