package actors

import (
	"math/rand/v2"
	"slices"
	"testing"

	"mt/host/optim"
	"mt/layers/schedule"
	"mt/model"
)

// This file tests gradients that wait on disks until the norm over all layers is known.

// gradsOnDisk returns tr with gradients on disks too, for the blocks whose states are there. slabs
// is the number of slabs that these layers share.
func (tr trial) gradsOnDisk(slabs int) trial {
	tr.gradOnDisk, tr.depths.GradSlabs = make([]bool, len(tr.stateOnDisk)), slabs
	for l, layer := range tr.config().Layers() {
		tr.gradOnDisk[l] = tr.stateOnDisk[l] && layer.Kind != model.Embedding && layer.Kind != model.Head
	}
	return tr
}

// gradBytes returns the size of all gradients that the trial puts on disks.
func (tr trial) gradBytes() int64 { return tr.plan(tr.config()).GradDiskBytes() }

// TestGradientsOnDisksChangeNothing: with blocks' gradients on disks, losses, norms, weights,
// moments and checkpoints have the bits of a run in memory. This holds for all depths, on devices
// that copy and on unified devices, which sum gradients directly in slabs.
func TestGradientsOnDisksChangeNothing(t *testing.T) {
	for name, change := range map[string]func(*trial){
		"in place": func(*trial) {},
		"copied":   func(tr *trial) { tr.bf16, tr.copyTiles = true, true },
		"bf16":     func(tr *trial) { tr.bf16, tr.gradBF16 = true, true },
		"tied":     func(tr *trial) { tr.tied, tr.copyTiles = true, true },
		"muon":     func(tr *trial) { tr.muon, tr.depths.MatrixBuffers = true, 2 },
		"muon bf16": func(tr *trial) {
			tr.muon, tr.bf16, tr.gradBF16, tr.copyTiles = true, true, true, true
		},
		"experts": func(tr *trial) { tr.experts, tr.chosen = 4, 2 },
		"experts on demand": func(tr *trial) {
			tr.experts, tr.chosen, tr.onDemand, tr.aux, tr.copyTiles = 4, 1, true, true, true
		},
		"shards": func(tr *trial) { tr.shards, tr.tied, tr.copyTiles = 3, true, true },
		"8-bit": func(tr *trial) {
			tr.wide, tr.by, tr.bf16, tr.bf16Master = true, optim.Quantised{By: recipe, Bits: 8}, true, true
		},
		"lanes": func(tr *trial) {
			tr.order, tr.lane, tr.copyTiles = schedule.Lanes, []int{0, 1, 0, 1, 0}, true
		},
		"lanes in place": func(tr *trial) {
			tr.order, tr.lane = schedule.Lanes, []int{0, 1, 1, 0, 1}
		},
		"evaluation": func(tr *trial) { tr.evalSteps = 2 },
		"sync":       func(tr *trial) { tr.sync = true },
		"skips": func(tr *trial) {
			tr.maxNonFinite, tr.spoil = 9, spoilWeights(0)
			tr.batch = withToken0(2, tr.rows, tr.micro)
		},
		"skips for the norm": func(tr *trial) { tr.maxNonFinite, tr.spoil = 9, tr.spoilGradient },
	} {
		t.Run(name, func(t *testing.T) {
			inShort(t, name, "lanes")
			t.Parallel()
			tr := base()
			tr.evalSteps, tr.saveSteps = 0, 2
			change(&tr)
			in, withDisks := &recorder{cuts: map[int][]byte{}}, &recorder{cuts: map[int][]byte{}}
			tr.saver = in
			want := mustRun(t, tr)
			for _, depths := range [][2]int{{1, 1}, {1 + rand.IntN(4), 2 + rand.IntN(3)}} {
				withDisks.cuts = map[int][]byte{}
				got := tr
				got.saver = withDisks
				got = got.statesOnDisk(depths[0]).gradsOnDisk(depths[1])
				if depths[1] > 1 {
					got.gradOnDisk[1+rand.IntN(len(got.gradOnDisk)-2)] = false
				}
				if rand.IntN(2) == 0 && name != "skips for the norm" { // it spoils tiles in memory
					got = got.weightsOnDiskToo()
				}
				if !slices.Contains(got.gradOnDisk, true) {
					t.Fatal("no gradient is away")
				}
				var read, written int64
				got.reported = func(r StepReport) { read, written = read+r.DiskRead, written+r.DiskWritten }
				sameAs(t, want, got)
				// Each step reads and writes states and gradients. Some states of the last step are not yet written
				// when it is reported.
				if n, g := got.stateBytes(), got.gradBytes(); name != "evaluation" && want.end.AdamStep == 4 && (read < 4*(n+g) || written < 2*n+4*g || got.weightsOnDisk == nil && written > 4*(n+g)) {
					t.Errorf("%d bytes were read and %d written in 4 steps of %d bytes of state and %d of gradients", read, written, n, g)
				}
				for step, cut := range in.cuts {
					if !slices.Equal(sorted(withDisks.cuts[step]), sorted(cut)) {
						t.Errorf("the checkpoint of step %d differs from one of a run in memory", step)
					}
				}
				if len(in.cuts) == 0 || len(in.cuts) != len(withDisks.cuts) {
					t.Errorf("%d checkpoints in memory, %d with disks", len(in.cuts), len(withDisks.cuts))
				}
			}
		})
	}
}

// TestPredictionOfGradientsOnDisks: a prediction counts the bytes of gradients on disks, once a
// step in each direction, and the time that a slow disk needs for them.
func TestPredictionOfGradientsOnDisks(t *testing.T) {
	tr := base()
	tr.copyTiles, tr.steps, tr.evalSteps = true, 3, 0
	with, without := tr.statesOnDisk(2).gradsOnDisk(2), tr.statesOnDisk(2)
	const slow = 1e-4 // GB/s
	sum := func(tr trial, read, write float64) (all StepReport) {
		m := machine()
		m.Disk.Read, m.Disk.Write = read, write
		for _, s := range tr.predict(t, m) {
			all.DiskRead, all.DiskWritten, all.Elapsed = all.DiskRead+s.DiskRead, all.DiskWritten+s.DiskWritten, all.Elapsed+s.Elapsed
		}
		return all
	}
	bytes := 3 * with.gradBytes()
	for _, at := range [][2]float64{{slow, 1e4}, {1e4, slow}} {
		got, want := sum(with, at[0], at[1]), sum(without, at[0], at[1])
		if more := (got.Elapsed - want.Elapsed).Seconds(); more < 0.9*float64(bytes)/slow/1e9 || more > 1.1*float64(bytes)/slow/1e9 {
			t.Errorf("at %v GB/s: three steps take %v longer with %d bytes of gradients", at, more, bytes)
		}
		if read := got.DiskRead - want.DiskRead; read < bytes || read > bytes+with.stateBytes() {
			t.Errorf("%d bytes more are read with %d of gradients", read, bytes)
		}
	}
	got := sum(with, 1e4, 1e4)
	if got.DiskWritten < bytes+2*with.stateBytes() || got.DiskWritten > bytes+3*with.stateBytes() {
		t.Errorf("%d bytes are written, %d of gradients and 3 times %d of states", got.DiskWritten, bytes, with.stateBytes())
	}
}
