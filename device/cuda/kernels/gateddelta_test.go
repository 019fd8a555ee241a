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

// narrow is a device whose scratch memory holds only two sequences of the gated delta rule.
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
// sequences. By default long cases run in one form; long tests run all forms.
type threeSequences struct{ *testing.T }

func (t threeSequences) Run(name string, f func(threeSequences)) bool {
	if !strings.HasPrefix(name, "GatedDelta") || !strings.Contains(name, "/[0 3 3 8] ") && !strings.HasSuffix(name, "/[0 70 71 275] 2 4 16 24") &&
		!(testkit.LongAsked() && strings.Contains(name, "/[0 70 71 275] ")) {
		return true
	}
	return t.T.Run(name, func(t *testing.T) { f(threeSequences{t}) })
}

// TestMoreSequencesThanScratch: if scratch memory cannot hold all sequences at a time, a block goes
// through several of them one after the other. The gradients of ALog and DtBias then include all of
// them.
func TestMoreSequencesThanScratch(t *testing.T) {
	testkit.NotShort(t)
	dev := narrow{newRig()}
	conformance.Operations(threeSequences{t}, dev)
	everyKernel(t, dev.rig, "gateddelta")
}
