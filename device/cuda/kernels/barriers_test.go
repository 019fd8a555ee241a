package kernels_test

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestMissingBarriers: the emulator notices when any one barrier of the cross entropy kernels is
// removed, unless the barrier is redundant. Some barriers separate accesses to shared memory,
// others the accesses to a row's gradient and its target in global memory.
func TestMissingBarriers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves it out: each barrier costs a second")
	}
	const module, barrier = "crossentropy", "bar.sync \t0;"
	source := kernels.PTX(module)
	found := bytes.Count(source, []byte(barrier))
	if found != 12 {
		t.Errorf("%s has %d barriers, this test knows 12", module, found)
	}
	for n := range found {
		dev := newRig()
		at := 0
		for range n + 1 {
			at += bytes.Index(source[at:], []byte(barrier)) + 1
		}
		at--
		edited := string(source[:at]) + strings.Repeat(" ", len(barrier)) + string(source[at+len(barrier):])
		m := testkit.Must(ptx.Parse(module+".ptx", edited))(t)
		dev.modules[module] = m
		var caught []string
		for _, dt := range []device.DType{device.F32, device.BF16} {
			s, _ := dev.NewStream("")
			e := &elements{t: t, dev: dev, s: s.(*rigStream), dt: dt, rng: rand.New(rand.NewPCG(7, 8))}
			e.loss(2500, lossForm{}, false)
			// Both shards are so large that several warps work on a row. The last column of the
			// last shard belongs to a chunk that a later warp writes.
			e.shards(13009, lossForm{})
			if err := s.Close(); err != nil {
				caught = append(caught, err.Error())
			}
		}
		// These two barriers stand between reading the target's logit in all threads and
		// overwriting it with the gradient. In the kernels for a whole vocabulary, the scan of the
		// row already has a barrier there.
		redundant := n == 1 || n == 7
		line := 1 + bytes.Count(source[:at], []byte("\n"))
		if redundant != (len(caught) == 0) {
			t.Errorf("line %d of %s.ptx: without this barrier %q is noticed, redundant: %v", line, module, caught, redundant)
		}
		want := "without a barrier"
		if n == 0 || n == 6 || n == 3 || n == 9 { // those of the scan, through shared memory
			want = "shared memory"
		}
		for _, c := range caught {
			if !strings.Contains(c, want) {
				t.Errorf("line %d: %s", line, c)
			}
		}
	}
}

// TestMissingBarriersOfSplitHeads removes every barrier of the attention kernels whose warps share rows, one at a time.
// Each is needed. Rows of one block have no query or see no key of a tile, so that warps which idle run too.
func TestMissingBarriersOfSplitHeads(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs the same interpreter in TestOp")
	}
	if found := withoutEachBarrier(t, "attention_512", 1, splitHeads); found != 19 {
		t.Errorf("%d barriers, this test knows 19", found)
	}
}

// withoutEachBarrier removes every barrier of a module, or each of which the number is a multiple of every, one at a time.
// The emulator must notice each, and nothing if none is removed. It returns how many barriers there are.
func withoutEachBarrier(t *testing.T, module string, every int, run func(*testing.T, *rig) error) int {
	t.Helper()
	source := string(kernels.PTX(module))
	found := regexp.MustCompile(`bar\.sync[^;]*;`).FindAllStringIndex(source, -1)
	for n, at := range append([][]int{{0, 0}}, found...) {
		if n%every != 0 {
			continue
		}
		dev := newRig()
		dev.modules[module] = testkit.Must(ptx.Parse(module+".ptx", source[:at[0]]+strings.Repeat(" ", at[1]-at[0])+source[at[1]:]))(t)
		if err := run(t, dev); (err == nil) != (at[1] == 0) {
			entry := source[:at[0]][strings.LastIndex(source[:at[0]], ".entry")+1:]
			t.Errorf("without the barrier in line %d of %s.ptx, %.40s: %v", 1+strings.Count(source[:at[0]], "\n"), module, entry, err)
		}
	}
	return len(found)
}

// splitHeads runs attention over heads of 512 elements, forward and backward.
func splitHeads(t *testing.T, dev *rig) error {
	const n, dim = 70, 512
	r := newAttentionRun(t, dev, device.BF16, attentionCase{queries: []int{n}, heads: 1, kvHeads: 1, dim: dim})
	var in [4]device.Tensor
	for i := range in {
		in[i], _ = r.random(n, dim, dim)
	}
	out := func() device.Tensor { return r.alloc(device.BF16, n*dim, 0) }
	o, lse := out(), r.alloc(device.F32, n, 0)
	kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: in[0], K: in[1], V: in[2], QStride: dim, KStride: dim})
	kernels.AttentionBackward(r.s, &op.AttentionBackward{AttentionShape: r.shape, DQ: out(), DK: out(), DV: out(), DO: in[3], O: o, LSE: lse,
		Q: in[0], K: in[1], V: in[2], QStride: dim, KStride: dim, DQStride: dim, DKStride: dim, Delta: r.alloc(device.F32, n, 0)})
	return r.s.err
}
