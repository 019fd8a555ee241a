package kernels_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/internal/testkit"
)

// TestMissingBarriers: the emulator notices when any one barrier of the cross entropy kernels is
// removed, unless the barrier is redundant. Some barriers separate accesses to shared memory,
// others the accesses to a row's gradient and its target in global memory.
func TestMissingBarriers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves it out: each barrier costs a second")
	}
	const module, barrier = "crossentropy", "bar.sync \t0;"
	source := kernels.PTX(module)
	found := bytes.Count(source, []byte(barrier))
	if found != 12 {
		t.Errorf("%s has %d barriers, this test knows 12", module, found)
	}
	for n := range found {
		dev := newRig()
		at := 0
		for range n + 1 {
			at += bytes.Index(source[at:], []byte(barrier)) + 1
		}
		at--
		edited := string(source[:at]) + strings.Repeat(" ", len(barrier)) + string(source[at+len(barrier):])
		m := testkit.Must(ptx.Parse(module+".ptx", edited))(t)
		dev.modules[module] = m
		var caught []string
		for _, dt := range []device.DType{device.F32, device.BF16} {
			s, _ := dev.NewStream("")
			e := &elements{t: t, dev: dev, s: s.(*rigStream), dt: dt, rng: rand.New(rand.NewPCG(7, 8))}
			e.loss(2500, lossForm{}, false)
			// Both shards are so large that several warps work on a row. The last column of the
			// last shard belongs to a chunk that a later warp writes.
			e.shards(13009, lossForm{})
			if err := s.Close(); err != nil {
				caught = append(caught, err.Error())
			}
		}
		// These two barriers stand between reading the target's logit in all threads and
		// overwriting it with the gradient. In the kernels for a whole vocabulary, the scan of the
		// row already has a barrier there.
		redundant := n == 1 || n == 7
		line := 1 + bytes.Count(source[:at], []byte("\n"))
		if redundant != (len(caught) == 0) {
			t.Errorf("line %d of %s.ptx: without this barrier %q is noticed, redundant: %v", line, module, caught, redundant)
		}
		want := "without a barrier"
		if n == 0 || n == 6 || n == 3 || n == 9 { // those of the scan, through shared memory
			want = "shared memory"
		}
		for _, c := range caught {
			if !strings.Contains(c, want) {
				t.Errorf("line %d: %s", line, c)
			}
		}
	}
}
