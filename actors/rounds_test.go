package actors

import (
	"slices"
	"testing"

	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
)

// TestRoundsDoNotChangeBits: a step in several rounds gives the bits of a step in one. It runs on the CPU, with weights
// in place and copied, and on an emulated GPU. Copied gradients go back to the device once for each later round.
func TestRoundsDoNotChangeBits(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"fp32": func(tr *trial) {},
		"bf16": func(tr *trial) {
			tr.bf16, tr.tied, tr.qkNorm, tr.keep, tr.evalSteps = true, true, true, layers.KeepQKV, 1
		},
		"a head in parts and single slots": func(tr *trial) {
			tr.shards, tr.depths = 3, testDepths(1)
		},
		"kept tensors travel": func(tr *trial) { tr.bf16, tr.travel, tr.evalSteps = true, 1, 1 },
		"in place":            func(tr *trial) { tr.copyTiles, tr.evalSteps = false, 1 },
		"lanes":               func(tr *trial) { tr.lane, tr.shards = []int{0, 1, 0, 1, 0}, 2 },
		"noise":               func(tr *trial) { tr.noise = true },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			testkit.DrawnInRace(t, 2)
			t.Parallel()
			tr := base()
			tr.steps, tr.micro, tr.order, tr.copyTiles = 3, 18, schedule.Lanes, true
			shape(&tr)
			want, err := tr.synchronous(t)
			testkit.NoError(t, err)
			one := mustRun(t, tr)
			for _, rounds := range []int{2, 3, 9} {
				tr := inRounds(tr, rounds)
				got := mustRun(t, tr)
				if got.digest() != want.digest() || !slices.Equal(got.steps, want.steps) || !slices.Equal(got.evals, one.evals) {
					t.Errorf("%d rounds: other bits than the synchronous step", tr.rounds)
				}
				if up, down := got.h2d-one.h2d, got.d2h-one.d2h; tr.copyTiles && tr.evalSteps == 0 && (up < down || down <= 0) {
					t.Errorf("%d rounds: %d more bytes up and %d down; gradients go both ways", tr.rounds, up, down)
				}
			}
			usually(t, name, "fp32")
			sameOnCUDA(t, inRounds(tr, 2))
		})
	}
}

// inRounds returns the trial with this number of rounds. If what blocks keep travels, it does so for half of a round's
// micro-batches.
func inRounds(tr trial, rounds int) trial {
	tr.rounds = rounds
	if n := (tr.plan(tr.config()).Limits.MicroBatches + rounds - 1) / rounds; tr.travel > 0 {
		tr.travelOf = schedule.Share{N: (n + 1) / 2, Of: n}
	}
	return tr
}
