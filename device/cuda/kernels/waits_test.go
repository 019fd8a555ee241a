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

// TestMissingSignals: if a signal that other blocks or warps wait for is removed from a kernel, the
// kernel traps instead of waiting forever, and the error names it. The test lowers the time after
// which waits trap; with all signals no wait takes that long.
func TestMissingSignals(t *testing.T) {
	testkit.NotShort(t)
	fused := regexp.MustCompile(`@first red\.relaxed\.gpu\.global\.add\.u32[^;]*;`)
	filled := regexp.MustCompile(`mbarrier\.arrive\.expect_tx[^;]*;`)
	for _, c := range []struct {
		module  string
		signals *regexp.Regexp
		sm90a   bool
	}{
		{"attention_gradients_64", fused, false},
		{"attention_64_sm90a", filled, true},
		{"attention_gradients_64_sm90a", fused, true},
		{"attention_gradients_64_sm90a", filled, true},
		{"attention_backward_64_sm90a", filled, true},
	} {
		source := string(kernels.PTX(c.module))
		if !c.signals.MatchString(source) {
			t.Fatalf("%s has no signals %v", c.module, c.signals)
		}
		for _, missing := range []bool{false, true} {
			text := source
			if missing {
				text = c.signals.ReplaceAllString(source, "")
			}
			m, err := ptx.Parse(c.module+".ptx", text)
			testkit.NoError(t, err)
			dev := newRig()
			dev.sm90a, dev.modules[c.module], dev.blocks, dev.period = c.sm90a, m, 3, 10
			if !missing {
				dev.period = 10_000
			}
			err = waiting(t, dev, c.module != "attention_backward_64_sm90a")
			if missing != (err != nil) || missing && (!strings.Contains(err.Error(), "executes trap") || !strings.Contains(err.Error(), "attention_")) {
				t.Errorf("%s, without its signals %v: %v", c.module, missing, err)
			}
		}
	}
}

// waiting runs attention forward and backward over several tiles of keys. With memory for sums blocks
// wait for each other.
func waiting(t *testing.T, dev *rig, summed bool) error {
	const n, dim = 150, 64
	r := newAttentionRun(t, dev, device.BF16, attentionCase{queries: []int{n}, heads: 1, kvHeads: 1, dim: dim})
	var in [4]device.Tensor
	for i := range in {
		in[i], _ = r.random(n, dim, dim)
	}
	out := func() device.Tensor { return r.alloc(device.BF16, n*dim, 0) }
	o, lse, delta := out(), r.alloc(device.F32, n, 0), r.alloc(device.F32, n, 0)
	kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: in[0], K: in[1], V: in[2], QStride: dim, KStride: dim})
	var sums device.Tensor
	if summed {
		sums = r.alloc(device.F32, r.shape.SumsLen(), 0)
	}
	kernels.AttentionBackward(r.s, &op.AttentionBackward{AttentionShape: r.shape, DQ: out(), DK: out(), DV: out(), DO: in[3], O: o, LSE: lse,
		Q: in[0], K: in[1], V: in[2], QStride: dim, KStride: dim, DQStride: dim, DKStride: dim, Delta: delta, Sums: sums})
	return r.s.err
}
