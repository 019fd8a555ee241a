package kernels_test

import (
	"regexp"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// hopperOrder matches the fences, waits and barriers that order asynchronous work in kernels for
// sm_90a. Barriers of one warp are excluded, because the emulator does not see races inside a warp.
var hopperOrder = regexp.MustCompile(`(?m)^.*\b(fence\.(?:proxy|mbarrier_init)[\w.:]*|wgmma\.fence[\w.]*|wgmma\.commit_group[\w.]*|wgmma\.wait_group[\w.]* \d+|bar\.(?:sync|arrive)[ \t][^;]*);$`)

// TestHopperOrder: if any one instruction that hopperOrder matches is removed from the kernels for
// sm_90a, the emulator reports an error. The only harmless removals are fences right after products
// that have fenced the same registers, and a commit of products that join the next group. Only long
// tests remove more than every fifth from the kernel with sums.
func TestHopperOrder(t *testing.T) {
	if testing.Short() || testkit.Race {
		t.Skip("-short and -race leave it out: it runs the kernels dozens of times")
	}
	for _, c := range []struct {
		module           string
		found, redundant int
		sums             bool
	}{{"attention_64_sm90a", 20, 1, false}, {"attention_backward_64_sm90a", 28, 2, false}, {"attention_gradients_64_sm90a", 31, 6, true}} {
		source := string(kernels.PTX(c.module))
		all := hopperOrder.FindAllStringSubmatchIndex(source, -1)
		if len(all) != c.found {
			t.Errorf("%s has %d of these instructions, this test knows %d", c.module, len(all), c.found)
		}
		redundant := 0
		for i, at := range all {
			if c.sums && i%5 != 0 && !testkit.LongAsked() {
				continue
			}
			text := source[at[2]:at[3]]
			m := testkit.Must(ptx.Parse(c.module+".ptx", source[:at[2]]+strings.Repeat(" ", len(text))+source[at[3]:]))(t)
			dev := newRig()
			dev.sm90a, dev.modules[c.module] = true, m
			if bothWays(t, dev, attentionCase{queries: []int{330}, heads: 1, kvHeads: 1, dim: 64}, c.sums) != nil ||
				c.sums && bothWays(t, dev, attentionCase{queries: []int{256}, keys: []int{330}, heads: 1, kvHeads: 1, dim: 64}, true) != nil { // only keys end in a tile
				continue
			}
			if redundant++; !strings.HasPrefix(text, "wgmma.fence") && !(c.sums && strings.HasPrefix(text, "wgmma.commit")) {
				t.Errorf("line %d of %s.ptx: without %s nothing is noticed", 1+strings.Count(source[:at[2]], "\n"), c.module, text)
			}
		}
		if redundant != c.redundant && (!c.sums || testkit.LongAsked()) {
			t.Errorf("%s: without %d of these instructions nothing is noticed, this test knows %d", c.module, redundant, c.redundant)
		}
	}
}

// hopperWait matches the beginning of a wait for an mbarrier (wait_for in CUDA C), and hopperArrive an arrival at one.
var (
	hopperWait   = regexp.MustCompile(`mbarrier\.try_wait\.parity\.shared::cta\.b64 done, \[%r\d+\], %?\w+;\n@done bra over;\nmov\.u32 begin`)
	hopperArrive = regexp.MustCompile(`mbarrier\.arrive[^;]*;`)
)

// TestHopperPieces: a block of the forward kernel that computes several pieces of work reports no error. If any one of
// its waits for an mbarrier or arrivals at one is removed, the emulator reports an error. Pieces have different
// numbers of tiles, and one warpgroup of some has no rows.
func TestHopperPieces(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("it runs the kernel dozens of times, and the race detector makes each ten times slower")
	}
	const module, dim = "attention_64_sm90a", 64
	source := string(kernels.PTX(module))
	run := func(from, to int) error {
		dev := newRig()
		dev.sm90a, dev.period = true, 10_000
		dev.modules[module] = testkit.Must(ptx.Parse(module+".ptx", source[:from]+source[to:]))(t)
		r := newAttentionRun(t, dev, device.BF16, attentionCase{queries: []int{330, 50, 70, 20}, keys: []int{330, 300, 200, 300}, heads: 1, kvHeads: 1, dim: dim})
		q, _ := r.random(r.o.TQ, dim, dim)
		k, _ := r.random(r.tk, dim, dim)
		kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: r.alloc(device.BF16, r.o.TQ*dim, 0), Q: q, K: k, V: k, QStride: dim, KStride: dim})
		return r.s.err
	}
	testkit.NoError(t, run(0, 0))
	for _, c := range []struct {
		what  *regexp.Regexp
		found int
	}{{hopperWait, 11}, {hopperArrive, 12}} {
		all := c.what.FindAllStringIndex(source, -1)
		if len(all) != c.found {
			t.Errorf("%s has %d of %v, this test knows %d", module, len(all), c.what, c.found)
		}
		for _, at := range all {
			if c.what == hopperWait { // the wait has labels, so its end is removed with the end of its scope
				at[1] = at[0] + strings.Index(source[at[0]:], "over:")
			}
			if run(at[0], at[1]) == nil {
				t.Errorf("line %d of %s.ptx: without it nothing is noticed", 1+strings.Count(source[:at[0]], "\n"), module)
			}
		}
	}
}

// bothWays runs attention forward and backward, with memory for sums or not, on random numbers and returns the emulator's error,
// if it found a race.
func bothWays(t *testing.T, dev *rig, c attentionCase, summed bool) error {
	r := newAttentionRun(t, dev, device.BF16, c)
	n := r.o.TQ
	var in [4]device.Tensor
	for i := range in {
		in[i], _ = r.random([]int{n, r.tk, r.tk, n}[i], c.dim, c.dim)
	}
	out := func() device.Tensor { return r.alloc(device.BF16, max(n, r.tk)*c.dim, 0) }
	o, lse, delta := out(), r.alloc(device.F32, n, 0), r.alloc(device.F32, n, 0)
	var sums device.Tensor
	if summed {
		sums = r.alloc(device.F32, r.shape.SumsLen(), 0)
	}
	kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: in[0], K: in[1], V: in[2], QStride: c.dim, KStride: c.dim})
	kernels.AttentionBackward(r.s, &op.AttentionBackward{AttentionShape: r.shape, DQ: out(), DK: out(), DV: out(), DO: in[3], O: o, LSE: lse,
		Q: in[0], K: in[1], V: in[2], QStride: c.dim, KStride: c.dim, DQStride: c.dim, DKStride: c.dim, Delta: delta, Sums: sums})
	return r.s.err
}
