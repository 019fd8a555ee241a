package appraise

import (
	"math"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// TestGPUs: the table has every GPU of plan/rates. The peak computed from a GPU's multiprocessors,
// cycles and clock is that of its datasheet.
func TestGPUs(t *testing.T) {
	peaks := map[string][2]float64{ // TFLOP/s in bf16 and fp32
		"rtx-3080": {59.5, 29.8}, "rtx-3090": {71.2, 35.6}, "rtx-4090": {165.2, 82.6}, "rtx-5090": {209.5, 104.8},
		"a100-pcie-40gb": {312, 19.5}, "a100-pcie-80gb": {312, 19.5}, "a100-sxm-40gb": {312, 19.5}, "a100-sxm-80gb": {312, 19.5},
		"l40s": {362, 91.6}, "h100-pcie": {756, 0}, "h100-sxm": {989, 0}, "h200": {989, 0}, "gh200": {989, 0}, "b200": {2250, 0}, "gb10": {125, 31},
	}
	for _, name := range rates.GPUs() {
		g, err := FindGPU(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for i, want := range peaks[name] {
			// Datasheets of GPUs with HBM give fp32 peaks at another clock than bf16 peaks; those of GeForce cards do
			// not.
			near := 0.02
			if strings.HasPrefix(name, "rtx-") {
				near = 0.003
			}
			if got := g.Arithmetic(i == 0) / 1e12; want > 0 && math.Abs(got-want) > near*want {
				t.Errorf("%s: %.1f TFLOP/s, the datasheet has %.1f", name, got, want)
			}
		}
		if peaks[name][0] == 0 || g.Reached < 0.8*g.Peak || g.Reached > g.Peak || g.Launch <= 0 {
			t.Errorf("%s: %+v, datasheet %v", name, g, peaks[name])
		}
	}
	if g, err := FindGPU("NVIDIA H100 80GB HBM3"); err != nil || g.Name != "h100-sxm" {
		t.Errorf("an H100 by NVML's name: %+v, %v", g, err)
	}
	if _, err := FindGPU("voodoo2"); err == nil || !strings.Contains(err.Error(), "no GPU is called") {
		t.Errorf("voodoo2: error %v", err)
	}
}

// TestOccupancy: Occupancy gives the same blocks, warps and limits as NVIDIA's occupancy
// calculator.
func TestOccupancy(t *testing.T) {
	for _, c := range []struct {
		arch *Architecture
		b    Block
		want Occupancy
	}{
		{sm90, Block{128, 255, 64 << 10}, Occupancy{2, 8, "registers"}},
		{sm80, Block{64, 40, 0}, Occupancy{24, 48, "registers"}},          // 51 warps would have registers, given to four at a time
		{sm90, Block{32, 16, 45 << 10}, Occupancy{4, 4, "shared memory"}}, // five without the reserved bytes
		{sm80, Block{256, 64, 0}, Occupancy{4, 32, "registers"}},
		{sm80, Block{256, 32, 0}, Occupancy{8, 64, "warps"}},
		{sm80, Block{256, 33, 0}, Occupancy{6, 48, "registers"}}, // 40 registers: 51 warps, in fours 48
		{sm89, Block{128, 255, 64 << 10}, Occupancy{1, 4, "shared memory"}},
		{sm86, Block{128, 64, 48 << 10}, Occupancy{2, 8, "shared memory"}},
		{sm86, Block{1024, 32, 0}, Occupancy{1, 32, "warps"}},
		{sm86, Block{32, 16, 0}, Occupancy{16, 16, "blocks"}},
		{sm89, Block{32, 16, 0}, Occupancy{24, 24, "blocks"}},
		{sm120, Block{33, 16, 1}, Occupancy{24, 48, "blocks"}},
		{sm80, Block{128, 16, 163 << 10}, Occupancy{1, 4, "shared memory"}}, // the most that a block may have
		{sm86, Block{128, 16, 100 << 10}, Occupancy{0, 0, "shared memory"}},
	} {
		if got := c.arch.Occupancy(c.b); got != c.want {
			t.Errorf("%s, %+v: %+v, want %+v", c.arch.Name, c.b, got, c.want)
		}
	}
}

// memory is the ptx.Memory of a test: one buffer, at every address.
type memory struct{ b *ptx.Buffer }

func (m memory) Find(uint64) *ptx.Buffer { return m.b }

// traced runs one block of warps warps, whose PTX is body, in the emulator. It returns the kernel,
// its counts and its trace.
func traced(t *testing.T, warps int, body string) (*ptx.Kernel, ptx.Counts, *ptx.Trace) {
	t.Helper()
	m := testkit.Must(ptx.Parse("test.ptx", `.version 8.0
.target sm_80
.address_size 64
.shared .align 128 .b8 space[16384];
.visible .entry k(.param .u64 p)
{
.reg .pred %p<8>; .reg .f32 %f<40>; .reg .b32 %t, %a, %i, %r<40>; .reg .b64 %g, %x;
ld.param.u64 %g, [p];
mov.u32 %t, %tid.x; mov.u32 %a, space;
`+body+"\nret;\n}"))(t)
	k := m.Kernel("k")
	h := memory{&ptx.Buffer{Base: 1 << 20, Data: make([]byte, 1<<20), Name: "memory"}}
	c := &ptx.Count{Traced: []uint32{0}}
	l := ptx.Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{uint32(32 * warps), 1, 1}, Params: []byte{0, 0, 16, 0, 0, 0, 0, 0}, Memory: h, Count: c}
	testkit.Must(l.Run())(t)
	return k, c.Sum, c.Traces[0]
}

// replayCycles returns the cycles that a replay of one block with this PTX takes on an H100. change
// may alter the replay first.
func replayCycles(t *testing.T, warps int, body string, change func(r *Replay)) float64 {
	t.Helper()
	g := testkit.Must(FindGPU("h100"))(t)
	k, _, trace := traced(t, warps, body)
	r := Replay{Kernel: k, Trace: trace, Resident: 1, Rounds: 1, Active: g.SMs}
	if change != nil {
		change(&r)
	}
	return g.Cycles(r)
}

// times returns text n times over. Each copy has its number in place of #.
func times(n int, text string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(text, "#", string(rune('0'+i/10))+string(rune('0'+i%10))))
	}
	return strings.NewReplacer("%f0", "%f", "%r0", "%r").Replace(b.String())
}

// TestReplay: a replay of instructions with known latencies takes the number of cycles computed by
// hand. slack allows for the exit instruction. The replay does not wait for results that no
// instruction reads.
func TestReplay(t *testing.T) {
	const slack = 2*latencyBranch + 5
	mma := "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};\n"
	free := "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f5,%f6,%f7,%f8};\n"
	load := "mul.lo.u32 %i, %t, 4; cvt.u64.u32 %x, %i; add.s64 %x, %g, %x;\n"
	for _, c := range []struct {
		what  string
		warps int
		body  string
		want  float64
	}{
		{"a chain of 50 sums", 1, times(50, "add.f32 %f1, %f1, %f1;\n"), 50 * latencyALU},
		{"30 sums that do not depend on each other", 1, times(30, "add.f32 %f#, %f30, %f30;\n"), 30},
		{"the same of four warps, one in each quarter", 4, times(30, "add.f32 %f#, %f30, %f30;\n"), 30},
		{"the same of eight warps, two in each quarter", 8, times(30, "add.f32 %f#, %f30, %f30;\n"), 60},
		{"chains of two warps in a quarter hide each other", 8, times(50, "add.f32 %f1, %f1, %f1;\n"), 50 * latencyALU},
		{"30 integer sums, half as fast", 1, times(30, "add.s32 %r#, %t, %t;\n"), 60},
		{"20 exponentials", 1, times(20, "ex2.approx.f32 %f#, %f30;\n"), 20 * 8},
		{"a chain of 10 products of matrices", 1, times(10, mma), 9 * latencyMMA},
		{"50 products that do not depend on each other", 1, times(50, free), 50 * mmaHopper},
		{"the same, of two warps in a quarter", 8, times(50, free), 100 * mmaHopper},
		{"moves cost nothing", 1, times(30, "mov.f32 %f1, %f2;\n") + times(50, "add.f32 %f1, %f1, %f1;\n"), 50 * latencyALU},
		{"a chain through moves", 1, times(50, "add.f32 %f1, %f2, %f2; mov.f32 %f2, %f1;\n"), 50 * latencyALU},
		{"bank conflicts", 1, "shl.b32 %a, %t, 7;\n" + times(20, "st.shared.u32 [%a], %t;\n"), 19*32 - queued},
		{"no bank conflicts", 1, "shl.b32 %a, %t, 2;\n" + times(20, "st.shared.u32 [%a], %t;\n"), 20},
		{"a load from the L2 cache and its use", 1, load + "ld.global.f32 %f1, [%x]; add.f32 %f1, %f1, %f1;", latencyL2},
		{"a load does not pass a store that waits for the L2 cache", 1, load + "shl.b32 %i, %t, 2; add.u32 %a, %a, %i; ld.global.f32 %f1, [%x]; st.shared.f32 [%a], %f1; ld.shared.f32 %f2, [%a];\n" +
			times(30, "add.f32 %f2, %f2, %f2;\n"), latencyL2 + latencyShared + 30*latencyALU},
		{"the same again is in the first-level cache", 1, load + "ld.global.f32 %f1, [%x]; add.f32 %f2, %f1, %f1; setp.gt.f32 %p1, %f2, 0f7f000000;\n@%p1 bra END;\nld.global.f32 %f1, [%x]; add.f32 %f2, %f1, %f1;\nEND:",
			latencyL2 + 2*latencyALU + latencyBranch + latencyL1},
		{"a barrier", 4, "bar.sync 0;", latencyBarrier},
		{"one warp is late at the barrier", 4, "setp.gt.u32 %p1, %t, 31;\n@%p1 bra END;\n" + times(50, "add.f32 %f1, %f1, %f1;\n") + "END:\nbar.sync 0;\n" + times(20, "add.f32 %f1, %f1, %f1;\n"),
			70*latencyALU + latencyBarrier + latencyBranch},
		{"a copy that is waited for", 1, load + "cp.async.ca.shared.global [%a], [%g], 16; cp.async.commit_group; cp.async.wait_group 0;", latencyL2},
		{"a copy that is not", 1, load + "cp.async.ca.shared.global [%a], [%g], 16; cp.async.commit_group; cp.async.wait_group 1;", 0},
	} {
		if got := replayCycles(t, c.warps, c.body, nil); got < c.want-2 || got > c.want+slack+12 {
			t.Errorf("%s: %.0f cycles, want %.0f and a few more", c.what, got, c.want)
		}
	}
}

// TestReplayOfBlocks: resident blocks share the multiprocessor, the next block starts when one
// ends, and requests that miss the L2 cache take longer.
func TestReplayOfBlocks(t *testing.T) {
	sums := times(30, "add.f32 %f#, %f30, %f30;\n")
	one := replayCycles(t, 4, sums, nil)
	if two := replayCycles(t, 4, sums, func(r *Replay) { r.Resident = 8 }); two < 8*30 || two > 8*30+one {
		t.Errorf("eight blocks at a time take %.0f cycles, one %.0f", two, one)
	}
	if each := replayCycles(t, 4, sums, func(r *Replay) { r.Rounds = 4 }); each < one || each > one+latencyNewBlock {
		t.Errorf("blocks in turn take %.0f cycles each, one alone %.0f", each, one)
	}
	var b strings.Builder
	b.WriteString("mul.lo.u32 %i, %t, 16; cvt.u64.u32 %x, %i; add.s64 %x, %g, %x;\n")
	for range 16 {
		b.WriteString("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%x]; add.s64 %x, %x, 16384; add.f32 %f5, %f5, %f1;\n")
	}
	b.WriteString("setp.gt.f32 %p1, %f5, 0f7f000000;\n@%p1 bra END;\nEND:") // waits for all of them
	hit := replayCycles(t, 32, b.String(), nil)
	miss := replayCycles(t, 32, b.String(), func(r *Replay) { r.Miss = 1 })
	g, _ := FindGPU("h100")
	bytes := 32.0 * 512 * 16
	reach := bytes / (g.L2 / float64(g.SMs))
	if hit < reach || hit > reach+latencyL2+200 {
		t.Errorf("%.0f bytes out of the L2 cache take %.0f cycles, want %.0f and a few more", bytes, hit, reach)
	}
	reach = bytes / (g.Reached / g.Clock / float64(g.SMs))
	if miss < reach || miss > reach+latencyMemory+200 {
		t.Errorf("%.0f bytes out of memory take %.0f cycles, want %.0f and a few more", bytes, miss, reach)
	}
}

// TestBound: the busy time of each resource follows from its counts and rate, computed by hand.
func TestBound(t *testing.T) {
	g := &GPU{Arch: sm80, SMs: 10, Clock: 1, MMA: 8, L2: 500, Peak: 100}
	var n ptx.Counts
	n.By[ptx.ClassFloat], n.By[ptx.ClassInteger], n.By[ptx.ClassSpecial], n.By[ptx.ClassMMA16], n.By[ptx.ClassMove] = 100, 200, 300, 400, 500
	n.By[ptx.ClassInteger64], n.By[ptx.ClassShuffle] = 10, 70
	n.Off, n.Fresh = 7, 1000
	n.SharedLoad.Wavefronts, n.SharedStore.Wavefronts = 600, 30
	n.Load.Sectors, n.Store.Sectors = 4000, 400
	want := map[string]float64{"issue": (100 + 200 + 300 + 400 + 20 + 70 + 7) / 40., "fp32": 2 * 100 / 40., "integer": 2 * 220 / 40., "special": 8 * 300 / 40., "tensor": 8 * 400 / 40.,
		"shared memory": (630 + 70 + 4400/4) / 10., "L2": 32 * 1400 / 500., "memory": 12345 / 100., "launch": 1000}
	for _, b := range g.Bound(Work{n, 12345}) {
		if w, ok := want[b.Resource]; !ok || math.Abs(b.Seconds*1e9-w) > 1e-9*w {
			t.Errorf("%s is busy for %v ns, want %v", b.Resource, b.Seconds*1e9, w)
		}
		delete(want, b.Resource)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
	if b := Longest(g.Bound(Work{n, 1 << 30})); b.Resource != "memory" {
		t.Errorf("%s is busy longest, with much memory", b.Resource)
	}
}

// TestSpread: each block starts in the place that is free first.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		places  int
		weights []float64
		want    float64
	}{
		{3, []float64{1, 2}, 20},
		{2, []float64{1, 1, 1}, 20},
		{2, []float64{3, 1, 1, 1}, 30},
		{2, []float64{1, 1, 1, 3}, 40},
		{1, []float64{1, 2, 3}, 60},
	} {
		if got := spread(c.places, c.weights, 10); got != c.want {
			t.Errorf("%v on %d places takes %v, want %v", c.weights, c.places, got, c.want)
		}
	}
}

// TestExpected: a launch with a block for each multiprocessor takes as long as one block. A launch
// of four times as many takes longer, and one of eight times as many about twice as long as that.
func TestExpected(t *testing.T) {
	g := testkit.Must(FindGPU("h100"))(t)
	k, _, trace := traced(t, 4, times(30, "add.f32 %f#, %f30, %f30;\n")+times(50, "add.f32 %f1, %f1, %f1;\n"))
	expected := func(blocks int) float64 {
		weights := make([]float64, blocks)
		for i := range weights {
			weights[i] = 1
		}
		return g.Expected(Replay{Kernel: k, Trace: trace, Resident: 4}, weights) - g.Launch*1e-6
	}
	one, full, twice := expected(1), expected(g.SMs), expected(8*g.SMs)
	if one != full {
		t.Errorf("a block alone takes %v s, as many as there are multiprocessors %v", one, full)
	}
	waves := expected(4 * g.SMs)
	if one > 0.9*waves {
		t.Errorf("a block that has a multiprocessor to itself takes %v s, four that share one %v", one, waves)
	}
	if twice < 1.6*waves || twice > 2.4*waves {
		t.Errorf("what fills the GPU takes %v s, twice as much %v", waves, twice)
	}
}
