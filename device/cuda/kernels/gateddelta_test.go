package kernels_test

import (
	"strings"
	"testing"

	"mt/device"
	"mt/device/conformance"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// narrow is a rig whose scratch memory holds two sequences of the gated delta rule.
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

// threeSequences runs the cases of the gated delta rule with three sequences. Long cases run in one form, and in all
// forms in long tests.
type threeSequences struct{ *testing.T }

func (t threeSequences) Run(name string, f func(threeSequences)) bool {
	if !strings.HasPrefix(name, "GatedDelta") || !strings.Contains(name, "/[0 3 3 8] ") && !strings.HasSuffix(name, "/[0 70 71 275] 2 4 16 24") &&
		!(testkit.LongAsked() && strings.Contains(name, "/[0 70 71 275] ")) {
		return true
	}
	return t.T.Run(name, func(t *testing.T) { f(threeSequences{t}) })
}

// TestMoreSequencesThanScratch: if scratch memory cannot hold all sequences at a time, a block goes through several
// of them. Its sums for ALog and DtBias then include all of them.
func TestMoreSequencesThanScratch(t *testing.T) {
	testkit.NotShort(t)
	dev := narrow{newRig()}
	conformance.Operations(threeSequences{t}, dev)
	everyKernel(t, dev.rig, "gateddelta")
	everyKernel(t, dev.rig, "channeldelta")
}
