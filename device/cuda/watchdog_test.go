package cuda

import (
	"bytes"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestWatchdog: if the driver reports a watchdog or Options.Watchdog is set, launches are limited,
// and the user gets a note. Otherwise there is no limit.
func TestWatchdog(t *testing.T) {
	for _, tc := range []struct{ driver, said bool }{{false, false}, {true, false}, {false, true}} {
		d, _ := newDevice(t, emu.Options{Watchdog: tc.driver}, Options{Watchdog: tc.said})
		bounded := tc.driver || tc.said
		if n := d.Notes(); (d.mostWork[device.BF16] > 1e12) != bounded || d.mostWork[device.BF16] != 4*d.mostWork[device.F32] || (len(n) == 1) != bounded || bounded && !strings.Contains(n[0], "watchdog") {
			t.Errorf("%+v: at most %v, notes %q", tc, d.mostWork, n)
		}
	}
}

// attention runs attention over two sequences, forward and backward, with at most most FLOPs in a
// launch. It returns the bytes of O, LSE, DQ, DK and DV, and the number of launches.
func attention(t *testing.T, o emu.Options, act device.DType, most float64) (all []byte, launches int) {
	t.Helper()
	d, drv := newDevice(t, o, Options{})
	d.mostWork = [2]float64{most, most}
	s := newStream(t, d, "s")
	const tokens, heads, kvHeads, dim = 70, 6, 2, 32
	wide, narrow := int64(tokens*heads*dim), int64(tokens*kvHeads*dim)
	x := alloc(t, d, 4*(5*wide+4*narrow+2*tokens*heads)+1<<12)
	content := make([]byte, x.Bytes)
	for i := range content { // both types read numbers below 2 of it
		content[i] = byte(i * i * 7)
		if i%2 == 1 {
			content[i] = 0x3e | byte(i%3)<<7
		}
	}
	s.CopyH2D(x, content)
	used := int64(0)
	take := func(dt device.DType, n int64) device.Tensor {
		at := used
		used += (n*dt.Size() + device.Align - 1) / device.Align * device.Align
		return x.Tensor(dt, at, n)
	}
	cu, q, do, k, v := take(device.I32, 3), take(act, wide), take(act, wide), take(act, narrow), take(act, narrow)
	from := used
	out, dq, dk, dv, lse, delta := take(act, wide), take(act, wide), take(act, narrow), take(act, narrow), take(device.F32, tokens*heads), take(device.F32, tokens*heads)
	s.CopyH2D(cu.Mem(), []byte{0, 0, 0, 0, 65, 0, 0, 0, tokens, 0, 0, 0})
	shape := op.AttentionShape{CuQ: cu, CuK: cu, Seqs: 2, TQ: tokens, TK: tokens, MaxQ: 65, MaxK: 65, Heads: heads, KVHeads: kvHeads, Dim: dim, Scale: 0.5}
	testkit.NoError(t, s.Sync())
	before := calls(drv, "cuLaunchKernel")
	op.Do(d, s, op.Attention{AttentionShape: shape, O: out, LSE: lse, Q: q, K: k, V: v, QStride: heads * dim, KStride: kvHeads * dim})
	op.Do(d, s, op.AttentionBackward{AttentionShape: shape, DQ: dq, DK: dk, DV: dv, DO: do, O: out, LSE: lse, Q: q, K: k, V: v,
		QStride: heads * dim, KStride: kvHeads * dim, DQStride: heads * dim, DKStride: kvHeads * dim, Delta: delta})
	all = make([]byte, used-from)
	s.CopyD2H(all, x.Slice(from, used-from))
	testkit.NoError(t, s.Sync())
	return all, calls(drv, "cuLaunchKernel") - before
}

// TestCutAttention: attention that is split into several launches by heads gives the same bits as
// in one launch.
func TestCutAttention(t *testing.T) {
	testkit.NotShort(t)
	const head = 2 * 70 * 65 * 32 // FLOPs of one product of one head
	for _, act := range []device.DType{device.BF16, device.F32} {
		want, whole := attention(t, emu.Options{}, act, 0)
		for _, tc := range []struct {
			most     float64
			launches int // of O; delta; DK and DV; DQ
		}{{1, 6 + 1 + 2 + 6}, {8.5 * head, 2 + 1 + 2 + 3}, {24 * head, 1 + 1 + 1 + 1}, {13 * head, 1 + 1 + 2 + 2}} {
			got, launches := attention(t, emu.Options{Mode: emu.Random}, act, tc.most)
			if launches != tc.launches || !bytes.Equal(got, want) {
				t.Errorf("%v, at most %v FLOPs: %d launches, want %d; the same bits: %v", act, tc.most, launches, tc.launches, bytes.Equal(got, want))
			}
		}
		if whole != 4 {
			t.Errorf("%v: %d launches of the whole", act, whole)
		}
	}
}
