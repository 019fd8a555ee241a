package actors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"mt/host"
	"mt/internal/testkit"
)

// lender is a Home that counts the layers it lends. A released layer loses its memory, so a use
// after the release panics.
type lender struct {
	*host.Store
	mu    sync.Mutex
	lent  map[int]int // by layer: currently lent
	taken map[int]int // by layer: total
	fail  int         // the Acquire that fails, counted from 1
	calls int
	out   map[int]*host.LayerState
}

var errDiskGone = errors.New("the disk of the layer is away")

func (h *lender) Acquire(i int) (*host.LayerState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.calls == h.fail {
		return nil, errDiskGone
	}
	h.lent[i]++
	h.taken[i]++
	if h.out[i] == nil {
		l := *h.Layers[i]
		h.out[i] = &l
	}
	return h.out[i], nil
}

func (h *lender) Release(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lent[i]--; h.lent[i] < 0 {
		panic(fmt.Sprintf("layer %d is given back by who has not got it", i))
	}
	if h.lent[i] == 0 {
		h.out[i].Tile, h.out[i].Lo, h.out[i].Planes = nil, nil, nil
		h.out[i] = nil
	}
}

// lend makes a lender the home of the trial. Its Acquire number `fail` returns an error; 0: none
// does.
func (tr *trial) lend(fail int) *lender {
	h := &lender{lent: map[int]int{}, taken: map[int]int{}, out: map[int]*host.LayerState{}, fail: fail}
	tr.home = func(s *host.Store) host.Home {
		h.Store = s
		return h
	}
	return h
}

// all returns how many layers are lent and not yet released.
func (h *lender) all() (n int) {
	for l := range maps.Values(h.lent) {
		n += l
	}
	return n
}

// TestLayersAreAcquiredAndReleased: every update and every save acquires its layer from the home
// and releases it. The results equal, bit by bit, those of a run whose home always holds all
// layers.
func TestLayersAreAcquiredAndReleased(t *testing.T) {
	for _, tied := range []bool{false, true} {
		tr := base()
		tr.tied, tr.steps, tr.saveSteps, tr.evalSteps = tied, 3, 1, 0
		saved, again := &recorder{cuts: map[int][]byte{}}, &recorder{cuts: map[int][]byte{}}
		tr.saver = saved
		want := mustRun(t, tr)
		tr.saver = again
		h := tr.lend(0)
		sameAs(t, want, tr)
		for step, cut := range saved.cuts {
			if len(cut) == 0 || !slices.Equal(sorted(again.cuts[step]), sorted(cut)) {
				t.Errorf("tied %t: the checkpoint of step %d differs from one of a store", tied, step)
			}
		}
		if h.all() != 0 {
			t.Errorf("tied %t: not given back: %v", tied, h.lent)
		}
		for l := range len(want.state) {
			times := 2 * tr.steps // updates and saves
			if h.taken[l] != times {
				t.Errorf("tied %t: layer %d is acquired %d times, want %d", tied, l, h.taken[l], times)
			}
		}
	}
}

// TestLayersThatCannotBeHad makes each Acquire of a run fail in turn. The run ends with an error
// that names the layer, and all layers are released.
func TestLayersThatCannotBeHad(t *testing.T) {
	said := map[string]bool{}
	for fail := 1; ; fail++ {
		tr := small()
		tr.steps, tr.saveSteps, tr.evalSteps, tr.saver = 1, 1, 0, &recorder{}
		h := tr.lend(fail)
		_, err := tr.run(t)
		if h.all() != 0 {
			t.Errorf("Acquire %d failed, and not given back is %v", fail, h.lent)
		}
		if h.calls < fail {
			testkit.NoError(t, err)
			break
		}
		if !errors.Is(err, errDiskGone) {
			t.Fatalf("Acquire %d failed, and the run ends with %v", fail, err)
		}
		words := strings.Fields(err.Error())
		said[words[0]] = true
	}
	if got := slices.Sorted(maps.Keys(said)); !slices.Equal(got, []string{"save", "update"}) {
		t.Errorf("the errors begin with %v", got)
	}
}
