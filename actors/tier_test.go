package actors

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/host"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// This file tests runs with states on disks.

// statesOnDisk puts every layer's state on disks, with this number of state slots.
func (tr trial) statesOnDisk(slots int) trial {
	tr.stateOnDisk, tr.stateSlots = make([]bool, len(tr.config().Layers())), slots
	for l := range tr.stateOnDisk {
		tr.stateOnDisk[l] = true
	}
	return tr
}

// weightsOnDiskToo returns tr with tiles on disks too, for the blocks whose states are there.
func (tr trial) weightsOnDiskToo() trial {
	tr.weightsOnDisk = make([]bool, len(tr.stateOnDisk))
	for l, layer := range tr.config().Layers() {
		tr.weightsOnDisk[l] = tr.stateOnDisk[l] && layer.Kind != model.Embedding && layer.Kind != model.Head
	}
	return tr
}

// TestStatesOnDisksChangeNothing: with states on disks, losses, weights, moments and checkpoints
// have the bits of a run in memory, for any choice of layers and any number of state slots.
func TestStatesOnDisksChangeNothing(t *testing.T) {
	for name, change := range map[string]func(*trial){
		"clip":       func(*trial) {},
		"no clip":    func(tr *trial) { tr.noClip = true },
		"tied":       func(tr *trial) { tr.noClip, tr.tied, tr.bf16 = true, true, true },
		"bf16":       func(tr *trial) { tr.bf16, tr.copyTiles = true, true },
		"muon":       func(tr *trial) { tr.muon = true },
		"packed":     func(tr *trial) { tr.packed, tr.noClip = true, true },
		"experts":    func(tr *trial) { tr.experts, tr.chosen, tr.noClip = 4, 2, true },
		"lanes":      func(tr *trial) { tr.order, tr.lane, tr.noClip = schedule.Lanes, []int{0, 1, 0, 1, 0}, true },
		"evaluation": func(tr *trial) { tr.evalSteps = 2 },
		"skips": func(tr *trial) {
			tr.maxNonFinite, tr.spoil = 9, spoilWeights(0)
			tr.batch = withToken0(2, tr.rows, tr.micro)
		},
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
			tr.saver = withDisks
			r := rand.New(rand.NewPCG(14, uint64(len(name))))
			tr = tr.statesOnDisk(1 + r.IntN(4))
			tr.links = r.IntN(2) == 0
			if r.IntN(2) == 0 {
				tr.stateOnDisk[r.IntN(len(tr.stateOnDisk))] = false
			}
			var read, written int64
			tr.reported = func(r StepReport) { read, written = read+r.DiskRead, written+r.DiskWritten }
			sameAs(t, want, tr)
			// Each of the 4 steps reads the state of every updated layer, n bytes altogether. Some
			// states of the last step may not be written yet when the step is reported. Reports do
			// not contain the traffic of evaluations.
			if n := tr.stateBytes(); name == "packed" {
				if read < 2*n || read >= 4*n || written < n || written >= 4*n {
					t.Errorf("%d bytes were read and %d written in 4 steps of %d bytes of state that are in fewer on disks", read, written, n)
				}
			} else if name != "skips" && name != "evaluation" && (read < 4*n || written < 2*n || written > 4*n) {
				t.Errorf("%d bytes were read and %d written in 4 steps of %d bytes of state", read, written, tr.stateBytes())
			}
			for step, cut := range in.cuts {
				if !slices.Equal(sorted(withDisks.cuts[step]), sorted(cut)) {
					t.Errorf("the checkpoint of step %d differs from one of a run in memory", step)
				}
			}
			if len(in.cuts) == 0 || len(in.cuts) != len(withDisks.cuts) {
				t.Errorf("%d checkpoints in memory, %d with disks", len(in.cuts), len(withDisks.cuts))
			}
		})
	}
}

// TestTilesOnDisksChangeNothing: with blocks' tiles on disks, losses, weights, moments and
// checkpoints have the bits of a run in memory, on devices that copy and on unified devices. Every
// fetch of such a tile reads it from the disk.
func TestTilesOnDisksChangeNothing(t *testing.T) {
	for name, change := range map[string]func(*trial){
		"clip":    func(*trial) {},
		"no clip": func(tr *trial) { tr.noClip = true },
		"copied":  func(tr *trial) { tr.bf16, tr.copyTiles = true, true },
		"tied":    func(tr *trial) { tr.noClip, tr.tied, tr.bf16 = true, true, true },
		"muon":    func(tr *trial) { tr.muon, tr.copyTiles = true, true },
		"experts": func(tr *trial) { tr.experts, tr.chosen, tr.noClip = 4, 2, true },
		"8-bit": func(tr *trial) {
			tr.wide, tr.by, tr.bf16, tr.bf16Master = true, optim.Quantised{By: recipe, Bits: 8}, true, true
		},
		"lanes": func(tr *trial) {
			tr.order, tr.lane, tr.noClip, tr.copyTiles = schedule.Lanes, []int{0, 1, 0, 1, 0}, true, true
		},
		"packed":     func(tr *trial) { tr.bf16, tr.copyTiles, tr.packed = true, true, true },
		"one slot":   func(tr *trial) { tr.depths.WeightSlots, tr.noClip = 1, true },
		"evaluation": func(tr *trial) { tr.evalSteps = 2 },
		"skips": func(tr *trial) {
			tr.maxNonFinite, tr.spoil = 9, spoilWeights(0)
			tr.batch = withToken0(2, tr.rows, tr.micro)
		},
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
			tr.saver = withDisks
			tr = tr.statesOnDisk(1 + rand.IntN(3)).weightsOnDiskToo()
			tr.links = rand.IntN(2) == 0
			if !slices.Contains(tr.weightsOnDisk, true) {
				t.Fatal("no tile is away")
			}
			var read, steps int64
			tr.reported = func(r StepReport) { read, steps = read+r.DiskRead, steps+1 }
			sameAs(t, want, tr)
			_, tiles := tr.plan(tr.config()).DiskBytes()
			// In every step each tile is read for its update, and at least once for forward and backward.
			if name != "skips" && name != "evaluation" && name != "packed" && read < steps*(tr.stateBytes()+tiles) {
				t.Errorf("%d bytes were read in %d steps of %d bytes of states and tiles, of which %d in tiles", read, steps, tr.stateBytes(), tiles)
			}
			for step, cut := range in.cuts {
				if !slices.Equal(sorted(withDisks.cuts[step]), sorted(cut)) {
					t.Errorf("the checkpoint of step %d differs from one of a run in memory", step)
				}
			}
			if len(in.cuts) == 0 || len(in.cuts) != len(withDisks.cuts) {
				t.Errorf("%d checkpoints in memory, %d with disks", len(in.cuts), len(withDisks.cuts))
			}
		})
	}
}

// stateBytes returns the size of all states and tiles that the trial puts on disks.
func (tr trial) stateBytes() int64 {
	states, tiles := tr.plan(tr.config()).DiskBytes()
	return states + tiles
}

// failingHome is a home of which one disk call fails: call number `fail`, counted from 1.
type failingHome struct {
	*host.Store
	mu          sync.Mutex
	calls, fail int
	what        string
}

var errStateDisk = errors.New("the disk of the states is away")

func (h *failingHome) call(what string, layer int, f func() error) error {
	h.mu.Lock()
	h.calls++
	fails := h.calls == h.fail
	if fails {
		h.what = fmt.Sprintf("%s layer %d", what, layer)
	}
	h.mu.Unlock()
	if fails {
		return errStateDisk
	}
	return f()
}

func (h *failingHome) Fetch(i, slot int) error {
	return h.call("read", i, func() error { return h.Store.Fetch(i, slot) })
}

func (h *failingHome) ReadTile(i int, from int64, into []byte) error {
	return h.call("tile", i, func() error { return h.Store.ReadTile(i, from, into) })
}

func (h *failingHome) Flush(i int) error {
	return h.call("write", i, func() error { return h.Store.Flush(i) })
}

func (h *failingHome) PutGrad(i int, from []byte) error {
	return h.call("put", i, func() error { return h.Store.PutGrad(i, from) })
}

func (h *failingHome) FetchGrad(i int) error {
	return h.call("gradient", i, func() error { return h.Store.FetchGrad(i) })
}

// TestEveryStateCallMayFail makes each read and write of a state or a gradient, and each read of a
// tile, fail in turn. The run ends with that error, which names the failed action.
func TestEveryStateCallMayFail(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	every := int(testkit.Every(t, 2))
	for fail := 1; ; fail += every {
		tr := small().statesOnDisk(2).weightsOnDiskToo().gradsOnDisk(1)
		tr.steps, tr.saveSteps, tr.evalSteps, tr.saver = 2, 1, 1, &recorder{}
		var h *failingHome
		tr.home = func(s *host.Store) host.Home {
			h = &failingHome{Store: s, fail: fail}
			return h
		}
		_, err := tr.run(t)
		if h.what == "" {
			testkit.NoError(t, err)
			if fail < 6 {
				t.Fatalf("only %d calls", h.calls)
			}
			return
		}
		verb, _, _ := strings.Cut(h.what, " ")
		says := map[string]string{"read": "read the state of ", "tile": "read the weights of ", "write": "write the state of ", "put": "write the gradient of ", "gradient": "read the gradient of "}[verb]
		if !errors.Is(err, errStateDisk) || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("call %d, %s, failed and the run ends with %v", fail, h.what, err)
		}
	}
}

// TestDisksAreBusy: diskTraffic counts the time during which at least one read or write is in
// progress; concurrent ones do not count twice.
func TestDisksAreBusy(t *testing.T) {
	var d diskTraffic
	for _, at := range []struct {
		n   int
		now time.Duration
	}{{1, 1}, {1, 3}, {-1, 4}, {-1, 6}, {1, 10}} {
		d.count(at.n, at.now)
	}
	if first, second := d.busyUntil(12), d.busyUntil(13); first != 7 || second != 8 {
		t.Errorf("disks are busy for %d and %d, want 7 and 8", first, second)
	}
}

// TestRoundsFollowEachOther: if a second checkpoint requests all states while they are being shown
// for the first (a save round), they are shown once more, after those of the first round.
func TestRoundsFollowEachOther(t *testing.T) {
	c := newStagerCore([]int{0, 1, 2}, 1)
	var shown []int
	var take func(effects []effect)
	take = func(effects []effect) {
		for _, e := range effects {
			switch e := e.(type) {
			case work:
				if f, ok := e.do.(fetchState); ok {
					take(c.step(stateRead{f.Layer}))
				}
			case send:
				if m, ok := e.msg.(StateFetched); ok && e.to == checkpointerID {
					shown = append(shown, m.Layer)
				}
			}
		}
	}
	take(c.step(begin{}))
	take(c.step(StatesWanted{}))
	take(c.step(LayerSaved{Step: 1, Layer: 0}))
	take(c.step(StatesWanted{}))
	for i := 1; i < len(shown) && i < 9; i++ {
		take(c.step(LayerSaved{Step: 1, Layer: shown[i]}))
	}
	if want := []int{0, 1, 2, 0, 1, 2}; !slices.Equal(shown, want) {
		t.Errorf("layers %v are shown, want %v", shown, want)
	}
}
