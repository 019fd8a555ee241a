package kernels_test

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// hopperCases are attention cases with more tiles than the kernels for sm_90a have buffers, so that
// buffers are reused.
var hopperCases = []attentionCase{
	{queries: []int{600}, heads: 2, kvHeads: 1, dim: 64},
	{queries: []int{400}, heads: 2, kvHeads: 1, dim: 128},
	{queries: []int{300, 70}, heads: 4, kvHeads: 2, dim: 64, window: 150, beyond: 8},
	{queries: []int{64, 128, 65}, keys: []int{321, 128, 512}, heads: 1, kvHeads: 1, dim: 128},
	{queries: []int{520}, heads: 1, kvHeads: 1, dim: 128, climb: 0.05},
	{queries: []int{210}, heads: 2, kvHeads: 2, dim: 192},
	{queries: []int{64, 65}, keys: []int{200, 129}, heads: 2, kvHeads: 1, dim: 192, window: 100, beyond: 8},
	{queries: []int{210}, heads: 2, kvHeads: 1, dim: 256},
	{queries: []int{64, 65}, keys: []int{200, 129}, heads: 2, kvHeads: 2, dim: 256, window: 100, beyond: 8},
}

// hopperTakes reports whether kernels for sm_90a compute a case.
func (c *attentionCase) hopperTakes() bool {
	return (c.dim%64 == 0 && c.dim <= 256) && c.softcap == 0 && c.beyond%8 == 0 && c.at%8 == 0
}

// TestAttentionHopper: with kernels for sm_90a, all attention cases and hopperCases agree with the
// oracle. Cases that these kernels do not support run on the other kernels, and Slower is called
// for them.
func TestAttentionHopper(t *testing.T) {
	if testkit.Race {
		t.Skip("slow under the race detector, for which TestOp runs the same interpreter")
	}
	ran, shared := map[string]bool{}, regexp.MustCompile("^attention_(delta|marks|round)")
	for _, c := range slices.Concat(attentionCases, hopperCases) {
		kind := ""
		switch {
		case c.hopperTakes():
		case c.dim == 96:
			kind = "width"
		case c.beyond == 7:
			kind = "stride"
		case c.softcap > 0 && c.dim == 64:
			kind = "cap"
		default:
			continue
		}
		if kind != "" && ran[kind] && !testkit.LongAsked() {
			continue // as slow as in their own test; one of each kind does
		}
		if testing.Short() && (c.dim != 64 || c.queries[0] != 47) {
			continue // one case of several sequences
		}
		ran[kind] = true
		t.Run(c.String(), func(t *testing.T) {
			dev := newRig()
			dev.sm90a = true
			newAttentionRun(t, dev, device.BF16, c).check()
			for name := range dev.counts {
				if !shared.MatchString(name) && strings.Contains(name, "sm90a") != c.hopperTakes() {
					t.Errorf("%s ran", name)
				}
			}
			if c.hopperTakes() == (len(dev.slower) > 0) {
				t.Errorf("told: %q", dev.slower)
			}
		})
	}
}

// TestAttentionHopperBlocks: the number of blocks changes no bit of the forward, and every query is written. There are
// more sequences than lanes, and some have no queries, no keys, or fewer keys than queries.
func TestAttentionHopperBlocks(t *testing.T) {
	testkit.NotShort(t)
	c := attentionCase{heads: 3, kvHeads: 1}
	for i := range 41 {
		c.queries, c.keys = append(c.queries, i*37%80), append(c.keys, i*53%100)
	}
	c.queries[40], c.keys[40] = 300, 420 // a later group with more tiles
	for _, dim := range []int{64, 256} {
		var want []byte
		for _, processors := range []int{1000, 1, 2, 7} {
			dev := newRig()
			dev.sm90a, dev.processors, dev.most = true, processors, float64(processors%2) // with 1 each head is a launch of its own
			c.dim = dim
			r := newAttentionRun(t, dev, device.BF16, c)
			q, _ := r.random(r.o.TQ, r.o.QStride, r.o.QStride)
			k, _ := r.random(r.tk, dim, dim)
			o, lse := r.alloc(device.BF16, r.o.TQ*c.heads*dim, 0), r.alloc(device.F32, r.o.TQ*c.heads, 0)
			kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: q, K: k, V: k, QStride: r.o.QStride, KStride: dim})
			r.ok()
			for i, x := range append(r.get(o), r.get(lse)...) {
				if math.IsNaN(x) {
					t.Fatalf("heads of %d, %d multiprocessors: element %d is not written", dim, processors, i)
				}
			}
			got := slices.Concat(dev.bytes(o.Mem()), dev.bytes(lse.Mem()))
			if want == nil {
				want = bytes.Clone(got)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("heads of %d: other bits with %d multiprocessors", dim, processors)
			}
		}
	}
}

// TestLackingForSM90a: LackingForSM90a returns the right reason for each type, head size and
// softcap without a kernel for sm_90a.
func TestLackingForSM90a(t *testing.T) {
	for _, c := range []struct {
		dim    int
		dt     device.DType
		capped bool
		want   kernels.Lacking
	}{
		{64, device.BF16, false, ""}, {128, device.BF16, false, ""}, {192, device.BF16, false, ""}, {256, device.BF16, false, ""}, {96, device.BF16, false, kernels.LackingDim}, {200, device.BF16, false, kernels.LackingDim},
		{128, device.BF16, true, kernels.LackingCap}, {128, device.F32, false, kernels.LackingF32},
	} {
		if got := kernels.LackingForSM90a(c.dim, c.dt, c.capped); got != c.want {
			t.Errorf("%d, %v, capped %v: %q, want %q", c.dim, c.dt, c.capped, got, c.want)
		}
	}
}

// TestAttentionHopperNeighbours: values of a neighbouring sequence, even NaN, do not change a
// sequence's results. Tiles across its end do load rows of both. With low scores, 2^−LSE is
// infinite, so the P of rows that do not exist must not be 2^(0 − LSE).
func TestAttentionHopperNeighbours(t *testing.T) {
	testkit.NotShort(t)
	dev := newRig()
	dev.sm90a = true
	for _, dim := range []int{64, 128, 192, 256} {
		for _, low := range []bool{false, true} {
			for _, summed := range []bool{false, true} {
				first := besideForeign(t, dev, dim, 1, low, summed)
				for _, foreign := range []float64{1e30, math.NaN()} {
					for i, got := range besideForeign(t, dev, dim, foreign, low, summed) {
						if !bytes.Equal(first[i], got) {
							t.Errorf("heads of %d, low scores %v, with sums %v: result %d differs with %v in the other sequence", dim, low, summed, i, foreign)
						}
					}
				}
			}
		}
	}
	if len(dev.slower) > 0 {
		t.Error(dev.slower)
	}
}

// besideForeign returns the first sequence's O, LSE and gradients, all finite, where the second
// sequence has only the value foreign. low: all of the first one's scores are below −300.
func besideForeign(t *testing.T, dev *rig, dim int, foreign float64, low, summed bool) (out [5][]byte) {
	t.Helper()
	const mine, rows = 70, 150
	r := newAttentionRun(t, dev, device.BF16, attentionCase{queries: []int{mine, rows - mine}, heads: 1, kvHeads: 1, dim: dim})
	var in [4]device.Tensor
	for i := range in {
		x, v := r.random(rows, dim, dim)
		for j := range v {
			switch {
			case j >= mine*dim:
				v[j] = foreign
			case low && i < 2: // Q and K
				v[j] = float64(1-2*i) * 7
			}
		}
		r.put(x, v)
		in[i] = x
	}
	q, k, v, do := in[0], in[1], in[2], in[3]
	o, lse, delta := r.alloc(device.BF16, rows*dim, 0), r.alloc(device.F32, rows, 0), r.alloc(device.F32, rows, 0)
	dq, dk, dv := r.alloc(device.BF16, rows*dim, 0), r.alloc(device.BF16, rows*dim, 0), r.alloc(device.BF16, rows*dim, 0)
	var sums device.Tensor
	if n := r.shape.SumsLen(); summed && n > 0 {
		sums = r.alloc(device.F32, n, 0)
	}
	kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: dim, KStride: dim})
	kernels.AttentionBackward(r.s, &op.AttentionBackward{AttentionShape: r.shape, DQ: dq, DK: dk, DV: dv, DO: do, O: o, LSE: lse,
		Q: q, K: k, V: v, QStride: dim, KStride: dim, DQStride: dim, DKStride: dim, Delta: delta, Sums: sums})
	r.ok()
	for i, x := range []device.Tensor{o, lse, dq, dk, dv} {
		for j, y := range r.get(x)[:int(x.Len)/rows*mine] {
			if math.IsNaN(y) || math.IsInf(y, 0) {
				t.Fatalf("heads of %d, low scores %v, with sums %v, %v in the other sequence: result %d has %v at %d", dim, low, summed, foreign, i, y, j)
			}
		}
		got := dev.bytes(x.Mem())
		out[i] = bytes.Clone(got[:len(got)/rows*mine])
	}
	return out
}

// TestAttentionHopperNaN: a NaN in the input appears in the result; no maximum or mask hides it.
func TestAttentionHopperNaN(t *testing.T) {
	testkit.NotShort(t)
	dev := newRig()
	dev.sm90a = true
	for _, dim := range []int{64, 128, 192, 256} {
		const rows, row = 140, 66
		r := newAttentionRun(t, dev, device.BF16, attentionCase{queries: []int{rows}, heads: 1, kvHeads: 1, dim: dim})
		q, qv := r.random(rows, dim, dim)
		k, _ := r.random(rows, dim, dim)
		v, _ := r.random(rows, dim, dim)
		qv[row*dim+5] = math.NaN()
		r.put(q, qv)
		o := r.alloc(device.BF16, rows*dim, 0)
		kernels.Attention(r.s, &op.Attention{AttentionShape: r.shape, O: o, Q: q, K: k, V: v, QStride: dim, KStride: dim})
		r.ok()
		for i, x := range r.get(o) {
			if (i/dim == row) != math.IsNaN(x) {
				t.Fatalf("heads of %d: row %d has %v", dim, i/dim, x)
			}
		}
	}
}
