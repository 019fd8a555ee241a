package actors

import (
	"slices"
	"testing"

	"mt/host/optim"
	"mt/layers"
)

// TestHeadWaitsForTheTable: where rows of the embedding are updated before others the head's weights wait for the embedding, and
// only there: not where another owns the table, where moments share a scale, or where the state is on a disk.
func TestHeadWaitsForTheTable(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*trial)
		by     optim.Optimizer
		want   bool
	}{
		"adamw":     {func(*trial) {}, recipe, true},
		"tied":      {func(tr *trial) { tr.tied = true }, recipe, false},
		"8-bit":     {func(*trial) {}, optim.Quantised{By: recipe, Bits: 8}, false},
		"on a disk": {func(tr *trial) { tr.away, tr.stateSlots = []bool{true, false, false, false, false}, 1 }, recipe, false},
		"away":      {func(tr *trial) { tr.away, tr.stateSlots = []bool{false, true, false, false, false}, 1 }, recipe, true},
	} {
		tr := base()
		tc.change(&tr)
		p := tr.plan(tr.config())
		r := &shared{plan: p, o: &Options{Optimizer: tc.by}, gradients: p.Gradients()}
		if r.rowsFirst() != tc.want {
			t.Errorf("%s: rows first: %t", name, !tc.want)
		}
		for _, tile := range layers.Tiles(p.Layouts, p.Spec) {
			head := tile.Layer == len(p.Layouts)-1
			if got := slices.Contains(r.earlySources(tile), 0); got != (tile.Layer == 0 || head && (tc.want || tr.tied)) {
				t.Errorf("%s: layer %d waits for the embedding: %t", name, tile.Layer, got)
			}
		}
	}
}

// TestPartsOfAnUpdate: both parts of a table together are all of it.
func TestPartsOfAnUpdate(t *testing.T) {
	some, others := rowSet{IDs: []int32{1, 2, 3}}, rowSet{IDs: []int32{1, 2, 3}, Others: true}
	if some.share(12) != 0.25 || others.share(12) != 0.75 || (rowSet{}).share(12) != 1 {
		t.Errorf("shares %v, %v and %v", some.share(12), others.share(12), rowSet{}.share(12))
	}
}

// TestRowsThatTheNextStepNeeds: they are updated first, nothing is updated until they are gathered, and then the other layers and
// the rest of the table; without word of the next step's rows in time the table is updated at once. A layer that is being saved holds
// its rows too.
func TestRowsThatTheNextStepNeeds(t *testing.T) {
	for _, saving := range []bool{false, true} {
		c := newOptimizerCore(ids(3), 1, State{}, 1)
		c.rows = true
		c.saving[0] = saving
		var done []string
		var run func(effects []effect)
		tell := func(m any) { run(c.step(m)) }
		run = func(effects []effect) {
			for _, e := range effects {
				switch e := e.(type) {
				case work:
					done = append(done, words(e.do))
					for _, s := range e.completed(1.0) {
						tell(s.msg)
					}
				case send:
					switch e.msg.(type) {
					case LayerUpdated, RowsUpdated, StepUpdated:
						done = append(done, words(e.msg))
					}
				}
			}
		}
		tell(StepClosed{Step: 1, LR: 1})
		tell(RowsWanted{Step: 2, IDs: []int32{4, 6}})
		for l := 2; l >= 0; l-- {
			tell(GradLanded{Step: 1, Layer: l, Slab: l, IDs: []int32{1}})
		}
		want := []string{"measure the gradient of layer 2 in slab 2, ids [1]", "measure the gradient of layer 1 in slab 1, ids [1]", "measure the gradient of layer 0 in slab 0, ids [1]"}
		if saving {
			if !slices.Equal(done, want) {
				t.Errorf("while the layer is being saved: %q", done)
			}
			tell(LayerSaved{Layer: 0})
		}
		first := len(done)
		if first != 5 || done[3][:len("update layer 0, rows [4 6]")] != "update layer 0, rows [4 6]" {
			t.Fatalf("saving %t: before the gather: %q", saving, done)
		}
		tell(RowsGathered{})
		var order []string
		for _, d := range done[first:] {
			order = append(order, d[:14])
		}
		if !slices.Equal(order, []string{"update layer 1", "layer 1 is at ", "update layer 2", "layer 2 is at ", "update layer 0", "layer 0 is at ", "all layers are"}) {
			t.Errorf("saving %t: after it: %q", saving, done[first:])
		}
	}
}
