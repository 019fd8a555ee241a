package actors

import (
	"testing"

	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
)

// TestKeptTensorsTravel: if what blocks keep for their backward travels to the host and back, a run gives the bits of a
// run without pipelining. It runs on the CPU and on an emulated GPU, also with a single slot.
func TestKeptTensorsTravel(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"fp32": func(tr *trial) { tr.keep = layers.KeepAll },
		"bf16": func(tr *trial) {
			tr.bf16, tr.tied, tr.qkNorm, tr.noClip, tr.keep = true, true, true, true, layers.KeepQKV
		},
		"levels": func(tr *trial) {
			tr.keeps = layers.Keeps{layers.KeepAll, layers.KeepQKV, layers.KeepAttention, layers.KeepNothing}
		},
		"experts":   func(tr *trial) { tr.bf16, tr.experts, tr.chosen, tr.keep = true, 4, 2, layers.KeepAttention },
		"lanes":     func(tr *trial) { tr.order, tr.lane, tr.keep = schedule.Lanes, []int{0, 1, 0, 1, 0, 0}, layers.KeepAll },
		"of some":   func(tr *trial) { tr.travelOf, tr.keep = schedule.Share{N: 2, Of: 3}, layers.KeepAll },
		"few slots": func(tr *trial) { tr.depths.ActivationSlots, tr.keep = 3, layers.KeepQKV },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			testkit.DrawnInRace(t, 2)
			t.Parallel()
			tr := base()
			tr.steps, tr.rows, tr.micro, tr.blocks, tr.copyTiles = 2, 4, 10, 4, true
			shape(&tr)
			want, err := tr.synchronous(t)
			testkit.NoError(t, err)
			for _, tr.travel = range []int{1, 3} {
				tr.evalSteps = 1
				got := mustRun(t, tr)
				if got.digest() != want.digest() {
					t.Errorf("%d slots: other bits than the synchronous step", tr.travel)
				}
				still := tr
				still.travel = 0
				if near := mustRun(t, still); got.d2h <= near.d2h {
					t.Errorf("%d slots: %d bytes go down, and %d if all stays on the device", tr.travel, got.d2h, near.d2h)
				}
			}
			usually(t, name, "levels")
			sameOnCUDA(t, tr)
		})
	}
}
