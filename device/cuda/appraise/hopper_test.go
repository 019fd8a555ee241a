package appraise

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/internal/testkit"
)

// tracedHopper runs a thread block of a kernel for sm_90a and returns the kernel, its counts and
// its trace. The block has 64 KiB of shared memory, all filled, and a tensor map of 64 columns by
// 64 rows. body is the kernel's PTX, in which
//
//   - %t is the thread
//   - %da and %db are matrix descriptors of 64 columns by 64 and by 256 rows, at bytes 0 and 8192 of shared memory, with a swizzle of 128 bytes
//   - the mbarriers at bytes 65536 and 65544 wait for one arrival, the one at 65552 for four
func tracedHopper(t *testing.T, warps int, body string) (*ptx.Kernel, ptx.Counts, *ptx.Trace) {
	t.Helper()
	sums := make([]string, 128)
	for i := range sums {
		sums[i] = fmt.Sprintf("%%d%d", i)
	}
	mul := func(n int, a string) string {
		across := map[bool]string{true: ", 0"}[a == "%da"]
		return fmt.Sprintf("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s}, %s, %%db, %%p7, 1, 1, 0%s;\n", n, strings.Join(sums[:n/2], ","), a, across)
	}
	body = strings.NewReplacer("MUL256;", mul(256, "%da"), "MUL64;", mul(64, "%da"), "MUL8;", mul(8, "%da"), "MULA64;", mul(64, "{%r1,%r2,%r3,%r4}"), "OPEN;", "wgmma.fence.sync.aligned;\n",
		"COMMIT;", "wgmma.commit_group.sync.aligned;\n", "WAIT;", "wgmma.wait_group.sync.aligned 0;\n").Replace(body)
	m := testkit.Must(ptx.Parse("test.ptx", `.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 p)
.maxntid 384, 1, 1
{
.reg .pred %p<8>; .reg .f32 %d<128>, %f<40>; .reg .b32 %t, %a, %z, %r<8>; .reg .b64 %da, %db, %map, %g;
.shared .align 1024 .b8 space[65600];
ld.param.u64 %g, [p];
mov.b64 %map, map; cvta.param.u64 %map, %map;
mov.u32 %t, %tid.x; mov.u32 %z, 0; mov.b64 %da, 0x4000004000000000; mov.b64 %db, 0x4000004000000200;
setp.ne.u32 %p7, %z, 0;
setp.eq.u32 %p6, %t, 0;
mov.u32 %a, space; mad.lo.u32 %a, %t, 16, %a;
FILL: st.shared.v4.b32 [%a], {%z, %z, %z, %z}; add.u32 %a, %a, `+fmt.Sprint(512*warps)+`; setp.lt.u32 %p1, %a, 65536; @%p1 bra FILL;
@%p6 mbarrier.init.shared::cta.b64 [space+65536], 1;
@%p6 mbarrier.init.shared::cta.b64 [space+65544], 1;
@%p6 mbarrier.init.shared::cta.b64 [space+65552], 4;
fence.proxy.async;
bar.sync 0;
`+body+"\nEND: ret;\n}"))(t)
	k := m.Kernel("k")
	h := memory{&ptx.Buffer{Base: 1 << 20, Data: make([]byte, 1<<20), Name: "memory"}}
	tensor := ptx.TensorMap{Address: 1 << 20, Element: 2, Rank: 2, Size: [5]uint64{64, 64}, Stride: [5]uint64{2, 128}, Box: [5]uint32{64, 64}, Swizzle: 128}
	params := tensor.Encode()
	c := &ptx.Count{Traced: []uint32{0}}
	l := ptx.Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{uint32(32 * warps), 1, 1}, Params: append(params[:], 0, 0, 16, 0, 0, 0, 0, 0), Memory: h, Count: c}
	testkit.Must(l.Run())(t)
	return k, c.Sum, c.Traces[0]
}

// copyIn returns PTX in which thread 0 starts boxes bulk copies of 8 KiB each, which report to the
// mbarrier at byte barrier of space.
func copyIn(boxes int, barrier int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@%%p6 mbarrier.arrive.expect_tx.shared::cta.b64 _, [space+%d], %d;\n", barrier, 8192*boxes)
	for i := range boxes {
		fmt.Fprintf(&b, "@%%p6 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [space+%d], [%%map, {0, 0}], [space+%d];\n", 8192*(i+1), barrier)
	}
	return b.String()
}

func waitFor(barrier, parity int, label string) string {
	return fmt.Sprintf("%s: mbarrier.try_wait.parity.shared::cta.b64 %%p5, [space+%d], %d; @!%%p5 bra %s;\n", label, barrier, parity, label)
}

// TestHopperCounts: the counts of a product are those computed by hand. The product has 64 rows of
// A and 256 of B, each of 64 columns:
//
//   - 64·256·64 multiplications in four wgmma, which read A's 8 KiB and B's 32 KiB once, 128 bytes a cycle
//   - five copies of 8 KiB, which read 1,280 sectors (of 32 bytes) and write 320 times 128 bytes
func TestHopperCounts(t *testing.T) {
	body := copyIn(5, 65536) + waitFor(65536, 0, "W") + "OPEN; " + strings.Repeat("MUL256; add.u64 %da, %da, 2; add.u64 %db, %db, 2;\n", 4) + "COMMIT; WAIT;\n" +
		"bar.sync 0;\n@%p6 cp.async.bulk.global.shared::cta.bulk_group [%g], [space], 4096;\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
	_, none, _ := tracedHopper(t, 4, "")
	_, got, trace := tracedHopper(t, 4, body)
	if want := int64(64 * 256 * 64); got.Grouped != want || got.Products != want {
		t.Errorf("%d products, %d by wgmma; want %d", got.Products, got.Grouped, want)
	}
	if want := (ptx.Traffic{Requests: 5, Bytes: 5 * 8192, Sectors: 5 * 256}); got.BulkLoad != want {
		t.Errorf("copied in %+v, want %+v", got.BulkLoad, want)
	}
	if want := (ptx.Traffic{Requests: 1, Bytes: 4096, Sectors: 128}); got.BulkStore != want {
		t.Errorf("copied out %+v, want %+v", got.BulkStore, want)
	}
	if want := (ptx.Banks{Requests: 4 + 1, Wavefronts: (8192+32768)/128 + 4096/128}); got.SharedLoad != want {
		t.Errorf("shared memory is read %+v, want %+v", got.SharedLoad, want)
	}
	if n := got.SharedStore.Wavefronts - none.SharedStore.Wavefronts; n != 5*64 {
		t.Errorf("copies write %d wavefronts, want %d", n, 5*64)
	}
	for class, want := range map[ptx.Class]int64{ptx.ClassWGMMA: 16, ptx.ClassWGMMAOrder: 12, ptx.ClassBulk: 6, ptx.ClassBulkWait: 8, ptx.ClassMbarWait: 4} {
		if n := got.By[class] - none.By[class]; n != want {
			t.Errorf("%v: %d, want %d", class, n, want)
		}
	}
	if got.Moved() != 5*256+128 {
		t.Errorf("%d sectors are moved", got.Moved())
	}
	// The trace has three events: a barrier before and one after, each for four warps, and the
	// phase of the mbarrier, which one arrival and five copies complete.
	if want := []int32{4, 6, 4}; fmt.Sprint(trace.Events) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", trace.Events, want)
	}
	g := &GPU{Arch: sm90, SMs: 10, Clock: 1, MMA: mmaHopper, L2: 500, Peak: 100}
	for _, b := range g.Bound(Work{got, 0}) {
		want := map[string]float64{"tensor": 64 * 256 * 64 / 2048 / 10., "L2": 32 * (5*256 + 128) / 500.}[b.Resource]
		if want > 0 && math.Abs(b.Seconds*1e9-want) > 1e-9*want {
			t.Errorf("%s is busy for %v ns, want %v", b.Resource, b.Seconds*1e9, want)
		}
	}
}

// TestSlowed: a replay of wgmma alone reaches the measured rate of large matrix products, not the
// datasheet's peak.
func TestSlowed(t *testing.T) {
	g := testkit.Must(FindGPU("h100"))(t)
	body := "OPEN;" + strings.Repeat("MUL256;", 100) + "COMMIT; WAIT;"
	k, _, trace := tracedHopper(t, 4, body)
	known := g.Cycles(Replay{Kernel: k, Trace: trace, Resident: 1, Rounds: 1, Active: 1})
	g.Multiplied = 0
	peak := g.Cycles(Replay{Kernel: k, Trace: trace, Resident: 1, Rounds: 1, Active: 1})
	if more, want := known-peak, 100*128*(989.4/794.5-1); math.Abs(more-want) > 0.01*want {
		t.Errorf("%.0f cycles more, want %.0f", more, want)
	}
}

// TestHopperReplay: a replay of wgmma, bulk copies and mbarriers takes the number of cycles
// computed by hand. The cycles of the kernel's beginning are subtracted.
func TestHopperReplay(t *testing.T) {
	g := testkit.Must(FindGPU("h100"))(t)
	cycles := func(warps int, body string) float64 {
		k, _, trace := tracedHopper(t, warps, body)
		_, _, begin := tracedHopper(t, warps, "")
		one := func(k *ptx.Kernel, trace *ptx.Trace) float64 {
			return g.Cycles(Replay{Kernel: k, Trace: trace, Resident: 1, Rounds: 1, Active: 1})
		}
		kernel, _, _ := tracedHopper(t, warps, "")
		return one(k, trace) - one(kernel, begin)
	}
	g.Multiplied = 0
	const n = 20
	products := func(text string) string { return "OPEN;\n" + strings.Repeat(text, n) + "COMMIT;\n" }
	exponentials := times(99, "ex2.approx.f32 %f1, %f30;\n")
	copied := copyIn(6, 65536)
	// 64 in the sums below is bytesToL2, the bytes that a multiprocessor exchanges with the L2
	// cache in a cycle.
	const arrival = latencyL2 + latencyBulk + latencyMbar
	for _, c := range []struct {
		what       string
		warps      int
		body       string
		want, more float64
	}{
		{"products of 256 columns", 4, products("MUL256;") + "WAIT;", n*128 + latencyProduct, 20},
		{"products of 64 columns, as fast as shared memory brings A and B", 4, products("MUL64;") + "WAIT;", n*32 + latencyProduct, 20},
		{"products of 8 columns, for which it brings A too slowly", 4, products("MUL8;") + "WAIT;", n*18 + latencyProduct, 20},
		{"products with A in registers", 4, products("MULA64;") + "WAIT;", n*32 + latencyProduct, 20},
		{"two warpgroups share the tensor cores", 8, products("MUL256;") + "WAIT;", 2*n*128 + latencyProduct, 20},
		{"exponentials alone", 4, exponentials, 99 * 8, 20},
		{"exponentials while products go on", 4, products("MUL256;") + exponentials + "WAIT;", n*128 + latencyProduct, 20},
		{"exponentials after products", 4, products("MUL256;") + "WAIT;\n" + exponentials, n*128 + latencyProduct + 99*8, 20},
		{"stores while products take the path", 4, products("MUL64;") + "mov.u32 %a, space; mad.lo.u32 %a, %t, 4, %a;\n" + strings.Repeat("st.shared.u32 [%a+40960], %t;\n", 20) +
			"bar.sync 1, 128;\n" + times(60, "add.f32 %f1, %f1, %f1;\n") + "WAIT;", n*32 - queued + latencyBarrier + 60*latencyALU, 60},
		{"a copy that all wait for", 4, copied + waitFor(65536, 0, "W"), 6*8192/64 + arrival, 20},
		{"products while a copy comes", 4, copyIn(1, 65544) + waitFor(65544, 0, "V") + "bar.sync 0;\n" +
			strings.ReplaceAll(copyIn(1, 65536), "space+8192", "space+57344") + products("MUL64;") + "WAIT;\n" + waitFor(65536, 0, "W"),
			8192/64 + arrival + latencyBarrier + n*32 + latencyProduct, 20},
		{"copied out", 4, "@%p6 cp.async.bulk.global.shared::cta.bulk_group [%g], [space], 65536;\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", 65536/64 + latencyL2 + latencyBulk, 20},
		{"copied out, until it is read", 4, "@%p6 cp.async.bulk.global.shared::cta.bulk_group [%g], [space], 32768;\ncp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;", 32768 / 64, 100},
		{"an mbarrier for a late warp", 8, "setp.lt.u32 %p1, %t, 128;\n@%p1 bra M;\n" + times(50, "add.f32 %f1, %f1, %f1;\n") + "setp.eq.u32 %p2, %t, 128;\n@%p2 mbarrier.arrive.shared::cta.b64 _, [space+65536];\nbra END;\nM:\n" +
			waitFor(65536, 0, "W") + times(50, "add.f32 %f1, %f1, %f1;\n"), 100*latencyALU + latencyMbar, 2*latencyBranch + 20},
		{"an mbarrier for four threads of a warp", 8, "setp.lt.u32 %p1, %t, 4;\n@%p1 mbarrier.arrive.shared::cta.b64 _, [space+65552];\n" + waitFor(65552, 0, "W"), latencyMbar, 2*latencyBranch + 20},
		{"a barrier at which some warps only arrive", 8, "setp.lt.u32 %p1, %t, 128;\n@%p1 bra M;\nbar.arrive 1, 256;\n" + times(50, "add.f32 %f1, %f1, %f1;\n") + "bra END;\nM:\n" + times(50, "add.f32 %f1, %f1, %f1;\n") + "bar.sync 1, 256;",
			50*latencyALU + latencyBarrier, 2*latencyBranch + 20},
	} {
		if got := cycles(c.warps, c.body); got < c.want-20 || got > c.want+c.more {
			t.Errorf("%s: %.0f cycles, want %.0f, at most 20 fewer and %.0f more", c.what, got, c.want, c.more)
		}
	}
}
