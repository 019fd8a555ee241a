package actors

import (
	"slices"
	"testing"

	"mt/cudart/emu"
	"mt/internal/testkit"
)

// TestHiddenStatesOnTheHost: a run with hidden states in host memory (launches copy them to the
// device in chunks) and attention by groups of heads gives the bits of a run without pipelining
// that has everything on the device. It runs on the CPU and on an emulated GPU, also with the
// smallest depths.
func TestHiddenStatesOnTheHost(t *testing.T) {
	for name, shape := range map[string]func(*trial){
		"fp32":    func(*trial) {},
		"bf16":    func(tr *trial) { tr.bf16, tr.tied, tr.qkNorm, tr.noClip = true, true, true, true },
		"shards":  func(tr *trial) { tr.bf16, tr.shards, tr.gradBF16 = true, 3, true },
		"experts": func(tr *trial) { tr.bf16, tr.experts, tr.chosen, tr.shared, tr.aux = true, 4, 2, true, true },
		"one row": func(tr *trial) { tr.rows, tr.maxLen, tr.muon = 1, 60, true },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			if name != "one row" { // its matrices have goroutines of their own
				testkit.DrawnInRace(t, 2)
			}
			t.Parallel()
			tr := base()
			tr.steps, tr.rows = 2, 4
			shape(&tr)
			want, err := tr.synchronous(t)
			testkit.NoError(t, err)
			small := tr
			small.depths = testDepths(1)
			small.depths.GradSlabs = 2
			for _, tr := range []trial{tr, small} {
				tr.onHost, tr.evalSteps = true, 1
				for _, tr.copyTiles = range []bool{false, true} {
					if got := mustRun(t, tr); got.digest() != want.digest() {
						t.Errorf("copied %t: other bits than the synchronous step", tr.copyTiles)
					}
				}
			}
			usually(t, name, "shards")
			onGPU, _, end := onCUDA(t, tr, emu.Options{})
			want, err = onGPU.synchronous(t)
			if end(); err != nil {
				t.Fatal(err)
			}
			small.onHost = true
			for seed := range uint64(testkit.Count(t, 6, 1)) {
				if got := runOnCUDA(t, small, emu.Options{Mode: emu.Random, Seed: seed}); !slices.Equal(got.steps, want.steps) || got.digest() != want.digest() {
					t.Error("other bits than the synchronous step on an emulated GPU")
				}
			}
		})
	}
}

// TestHiddenStatesOnTheHostAreCounted: if hidden states are in host memory, the reports' copied
// bytes include the copies of hidden states to and from the device.
func TestHiddenStatesOnTheHostAreCounted(t *testing.T) {
	tr := base()
	tr.copyTiles, tr.steps = true, 1
	near := mustRun(t, tr)
	tr.onHost = true
	far := mustRun(t, tr)
	// The trial has three blocks of hidden size 24 with 4 query and 2 key/value heads of size 6, an
	// embedding and a head, in fp32. Forward and backward of a block copy 456 elements of each
	// token to the device and 288 to the host (7·24 + 4·48 + 4·24 and 3·24 + 3·48 + 3·24, from
	// crossing.go). Embedding and head add 24·3 and 24·2.
	tokens := int64(0)
	for _, row := range tr.makeRows(1) {
		tokens += int64(len(row.IDs))
	}
	if up, down := far.h2d-near.h2d, far.d2h-near.d2h; up != 4*tokens*(3*(7*24+4*48+4*24)+24*3) || down != 4*tokens*(3*(3*24+3*48+3*24)+24*2) {
		t.Errorf("%d bytes more up and %d down, of %d tokens", up, down, tokens)
	}
}
