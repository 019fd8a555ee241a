package kernels_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// narrow is a device that computes the gated delta rule in segments of two chunks.
type narrow struct{ *rig }

func (d narrow) Do(s device.Stream, o device.Op) {
	const most = 2
	switch a := o.(type) {
	case *op.GatedDelta:
		kernels.GatedDeltaBy(on(s), a, most)
	case *op.GatedDeltaBackward:
		kernels.GatedDeltaBackwardBy(on(s), a, most)
	}
}

// threeSequences selects from the conformance cases those of the gated delta rule with three
// sequences, and those that begin with a state and take two segments. By default long cases run in one form; long tests run
// all forms.
type threeSequences struct{ *testing.T }

func (t threeSequences) Run(name string, f func(threeSequences)) bool {
	if !strings.HasPrefix(name, "GatedDelta") || !strings.Contains(name, "/[0 3 3 8] ") && !strings.HasSuffix(name, "/[0 70 71 275] 2 4 16 24") &&
		(!strings.Contains(name, "/[0 129] ") || !strings.HasSuffix(name, " goes on")) &&
		!(testkit.LongAsked() && strings.Contains(name, "/[0 70 71 275] ")) {
		return true
	}
	return t.T.Run(name, func(t *testing.T) { f(threeSequences{t}) })
}

// TestMoreSequencesThanScratch: if scratch memory cannot hold all chunks at a time, states go from segment to segment.
// The gradients of ALog and DtBias then include all segments.
func TestMoreSequencesThanScratch(t *testing.T) {
	testkit.NotShort(t)
	dev := narrow{newRig()}
	conformance.Operations(threeSequences{t}, dev)
	everyKernel(t, dev.rig, "gateddelta")
}

// TestMissingBarriersOfDelta removes barriers of the gated delta rule's kernels, one at a time. The
// emulator notices each. By default a sample is removed, in long tests a larger one.
func TestMissingBarriersOfDelta(t *testing.T) {
	testkit.NotShort(t)
	withoutEachBarrier(t, "gateddelta", testkit.Every(t, 64), func(_ *testing.T, dev *rig) error { return manyTiles(dev) })
}

// manyTiles computes the gated delta rule and its backward for heads of two tiles each way, in both compute types and forms.
func manyTiles(dev *rig) error {
	const tokens, heads, dim = 70, 2, 72
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for keyHeads := 1; keyHeads <= heads; keyHeads++ { // the second time with a decay for each channel
			s := &rigStream{rig: dev}
			zeros := func(dt device.DType, n int) device.Tensor {
				m, _ := dev.Alloc(accounts.Workspace, int64(n)*dt.Size()) // cannot fail
				clear(dev.bytes(m))
				return m.Tensor(dt, 0, int64(n))
			}
			cu := zeros(device.I32, 2)
			binary.NativeEndian.PutUint32(dev.bytes(device.Mem{Addr: cu.Addr, Bytes: 8})[4:], tokens)
			a := op.DeltaShape{Cu: cu, Seqs: 1, T: tokens, KeyHeads: keyHeads, Heads: heads, KeyDim: dim, ValueDim: dim, GateStride: 2 * heads, ByChannel: keyHeads == heads}
			qkv, gates, o := zeros(dt, tokens*a.Width()), zeros(dt, tokens*a.GateStride), zeros(dt, tokens*heads*dim)
			rates, bias, channels, states := zeros(device.F32, heads), zeros(device.F32, heads*dim), zeros(dt, tokens*heads*dim), zeros(device.F32, a.StatesLen())
			kernels.GatedDelta(s, &op.GatedDelta{DeltaShape: a, O: o, QKV: qkv, Gates: gates, A: channels, ALog: rates, DtBias: bias, States: states})
			kernels.GatedDeltaBackward(s, &op.GatedDeltaBackward{DeltaShape: a, DQKV: zeros(dt, tokens*a.Width()), DGates: zeros(dt, tokens*a.GateStride),
				DA: zeros(dt, tokens*heads*dim), DO: o, QKV: qkv, Gates: gates, A: channels, ALog: rates, DtBias: bias, States: states})
			if s.err != nil {
				return s.err
			}
		}
	}
	return nil
}

// launches is a launcher that counts launches and runs none.
type launches struct {
	*rigStream
	n int
}

func (l *launches) Launch(*kernels.Kernel, kernels.Dim3, kernels.Dim3, int, *kernels.Params) { l.n++ }

// TestLargestDeltaFits: scratch memory holds at least one chunk of the largest heads, so segments are never empty.
func TestLargestDeltaFits(t *testing.T) {
	const chunks = 4
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, byChannel := range []bool{false, true} {
			l, given := &launches{rigStream: &rigStream{rig: newRig()}}, device.Tensor{Addr: 1}
			a := op.DeltaShape{Seqs: 1, T: chunks * op.DeltaChunk, KeyHeads: op.MostDeltaHeads, Heads: op.MostDeltaHeads, KeyDim: op.MostDeltaDim, ValueDim: op.MostDeltaDim,
				ByChannel: byChannel}
			kernels.GatedDelta(l, &op.GatedDelta{DeltaShape: a, QKV: device.Tensor{DType: dt}, Last: given})
			kernels.GatedDeltaBackward(l, &op.GatedDeltaBackward{DeltaShape: a, QKV: device.Tensor{DType: dt}, States: given})
			if l.n == 0 || l.n > 12*chunks || l.err != nil {
				t.Errorf("%v, by channel %v: %d launches, %v", dt, byChannel, l.n, l.err)
			}
			l.Close()
		}
	}
}
