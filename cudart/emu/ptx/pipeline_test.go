package ptx

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// pipelineTiles is the number of tiles that a pipeline multiplies. pipelineStages of them fit in
// shared memory at a time.
const (
	pipelineTiles  = 7
	pipelineStages = 2
)

// pipeline returns a kernel with a consumer warpgroup and a producer warp. One thread of the
// producer copies 64 × 64 tiles of A and B, and the warpgroup multiplies them. The parameters are
// the tensor maps of A and B, and the address of the sums. mistake names an instruction to leave
// out or to add.
func pipeline(mistake string) string {
	var l lines
	const filled, free = 32768, 32768 + 8*pipelineStages
	waits := 0
	wait := func(barrier, parity int) {
		waits++
		l.add("\tW%d: mbarrier.try_wait.parity.shared::cta.b64 %%q, [space+%d], %d; @!%%q bra W%d;", waits, barrier, parity&1, waits)
	}
	l.add(hopperHeader + `.visible .entry k(.param .align 64 .b8 ma[128], .param .align 64 .b8 mb[128], .param .u64 out)
{
	.reg .pred %%p, %%q, %%one, %%lane;
	.reg .b32 %%t, %%x;
	.reg .f32 %%d<32>;
	.reg .b64 %%ma, %%mb, %%o, %%r;
	.shared .align 1024 .b8 space[32832];
	mov.u32 %%t, %%tid.x;
	mov.b64 %%ma, ma; cvta.param.u64 %%ma, %%ma;
	mov.b64 %%mb, mb; cvta.param.u64 %%mb, %%mb;
	setp.eq.u32 %%one, %%t, 128; and.b32 %%x, %%t, 31; setp.eq.u32 %%lane, %%x, 0;`)
	for s := range pipelineStages {
		l.add("\t@%%one mbarrier.init.shared::cta.b64 [space+%d], 1; @%%one mbarrier.init.shared::cta.b64 [space+%d], 4;", filled+8*s, free+8*s)
	}
	l.add("\t@%%one fence.mbarrier_init.release.cluster;\n\tbar.sync 0;\n\tsetp.lt.u32 %%p, %%t, 128;\n\t@%%p bra CONSUME;\n\t@!%%one bra E;")
	for t := range pipelineTiles {
		s := t % pipelineStages
		if t >= pipelineStages && mistake != "free is not waited for" {
			wait(free+8*s, t/pipelineStages-1)
		}
		l.add("\tmbarrier.arrive.expect_tx.shared::cta.b64 _, [space+%d], 16384;", filled+8*s)
		for i, m := range []string{"ma", "mb"} {
			l.add("\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [space+%d], [%%%s, {%d, 0}], [space+%d];", 16384*s+8192*i, m, 64*t, filled+8*s)
		}
	}
	l.add("\tbra E;\n\tCONSUME:")
	release := func(s int) { l.add("\t@%%lane mbarrier.arrive.shared::cta.b64 _, [space+%d];", free+8*s) }
	for t := range pipelineTiles {
		s := t % pipelineStages
		if t != 3 || mistake != "filled is not waited for once" {
			wait(filled+8*s, t/pipelineStages+map[bool]int{true: 1}[t == 2 && mistake == "the parity is wrong once"])
		}
		a, b := tile{16384 * s, 64, 128, false}, tile{16384*s + 8192, 64, 128, false}
		l.add("\tsetp.gt.u32 %%p, %d, 0;\n\twgmma.fence.sync.aligned;", t)
		for k := 0; k < 64; k += 16 {
			var sums []string
			for i := range 32 {
				sums = append(sums, fmt.Sprintf("%%d%d", i))
			}
			l.add("\twgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%s}, %d, %d, %%p, 1, 1, 0, 0; setp.eq.u32 %%p, 0, 0;", strings.Join(sums, ","), a.descriptor(k), b.descriptor(k))
		}
		l.add("\twgmma.commit_group.sync.aligned;")
		if t == 1 && mistake == "freed too early" {
			release(s)
		}
		l.add("\twgmma.wait_group.sync.aligned 0;")
		if t != 1 || mistake != "freed too early" {
			release(s)
		}
		if t == 2 && mistake == "freed twice" {
			release(s)
		}
	}
	l.add("\tld.param.u64 %%o, [out]; mul.wide.u32 %%r, %%t, 128; add.u64 %%o, %%o, %%r;")
	for i := range 32 {
		l.add("\tst.global.f32 [%%o+%d], %%d%d;", 4*i, i)
	}
	l.add("\tE: ret;\n}")
	return l.String()
}

// runPipeline runs a kernel of pipeline on random tiles. It reports whether the sums are right, and
// returns the counts.
func runPipeline(t *testing.T, text string, seed uint64) (right bool, counts Counts, err error) {
	t.Helper()
	const columns = 64 * pipelineTiles
	rng := rand.New(rand.NewPCG(seed, 3))
	a, dataA := randomBrains(rng, 64*columns)
	b, dataB := randomBrains(rng, 64*columns)
	var h heap
	bufA, bufB, out := h.add("A", dataA), h.add("B", dataB), h.add("out", make([]byte, 64*64*4))
	var all []byte
	for _, x := range []*Buffer{bufA, bufB} {
		m := TensorMap{Address: x.Base, Element: 2, Rank: 2, Size: [5]uint64{columns, 64}, Stride: [5]uint64{2, 2 * columns}, Box: [5]uint32{64, 64}, Swizzle: 128}
		encoded := m.Encode()
		all = append(all, encoded[:]...)
	}
	l := Launch{Kernel: parse(t, text).Kernel("k"), Grid: dim(1), Block: dim(160), Memory: h, Seed: seed, CheckGlobal: true, Params: append(all, params(out.Base)...), Count: &Count{}}
	if _, err := l.Run(); err != nil {
		return false, counts, err
	}
	for row := range 64 {
		for col := range 64 {
			want := float32(0)
			for k := range columns {
				want += a[row*columns+k] * b[col*columns+k]
			}
			thread, reg := row/16*32+row%8*4+col%8/2, col/8*4+row%16/8*2+col%2
			if f32(binary.LittleEndian.Uint32(out.Data[4*(thread*32+reg):])) != want {
				return false, counts, nil
			}
		}
	}
	return true, l.Count.Sum, nil
}

// TestPipeline: a producer and its consumers give the right sums, and the same counts, in every
// order of warps and copies.
func TestPipeline(t *testing.T) {
	text := pipeline("")
	_, first, _ := runPipeline(t, text, 0)
	if want := int64(64 * 64 * 64 * pipelineTiles); first.Grouped != want {
		t.Errorf("%d products, want %d", first.Grouped, want)
	}
	for seed := range uint64(20) {
		right, counts, err := runPipeline(t, text, seed)
		if err != nil || !right {
			t.Errorf("seed %d: right %v, error %v", seed, right, err)
		}
		if counts != first {
			t.Errorf("seed %d: counts %+v, and %+v with seed 0", seed, counts, first)
		}
	}
}

// TestPipelineMistakes: the emulator reports each mistake of the pipeline, in every order of warps
// and copies.
func TestPipelineMistakes(t *testing.T) {
	testkit.NotShort(t)
	for mistake, want := range map[string]string{
		"free is not waited for":        "whose phase 0 waits for 0 more of 1",
		"filled is not waited for once": "is read while a bulk copy writes it",
		"the parity is wrong once":      "",
		"freed too early":               "",
		"freed twice":                   "",
	} {
		text := pipeline(mistake)
		for seed := range uint64(20) {
			if _, _, err := runPipeline(t, text, seed); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, seed %d: error %v, want one with %q", mistake, seed, err, want)
			}
		}
	}
}
