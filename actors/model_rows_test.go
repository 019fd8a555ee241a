package actors

import "mt/schedule"

// rowsFirst says whether rows of the embedding are updated before others.
func (cfg worldConfig) rowsFirst() bool {
	return !cfg.tied && cfg.ranks <= 1 && !cfg.isAway(0) && cfg.seed%4 != 0
}

// sources are those of the tiles of spec, where the head's wait for the embedding too.
func (cfg worldConfig) sources(spec schedule.Spec) [][]int {
	out := ownTiles(spec, cfg.tied)
	if cfg.rowsFirst() {
		for tile, from := range out {
			if from[0] == cfg.layers-1 {
				out[tile] = append(from, 0)
			}
		}
	}
	return out
}

// updated notes that an update of a layer is done: of all its rows, of some, or of the others, which follow these once.
func (w *world) updated(d update) {
	switch {
	case d.Of.IDs == nil:
		if d.Layer == 0 {
			w.rows++
		}
	case d.Layer != 0:
		w.failf("rows of layer %d are updated", d.Layer)
	case !d.Of.Others:
		if w.rows != w.version[0] {
			w.failf("rows are updated twice")
		}
		w.rows++
		return
	case w.rows != w.version[0]+1:
		w.failf("the other rows are updated after %d updates, and the first after %d", w.version[0], w.rows)
	}
	w.moved(d.Layer)
}

// gather checks that rows are gathered when they are as a pass needs them: of an evaluation, the whole table.
func (w *world) gather(d gatherRows, lane laneID) {
	want := w.updates(d.p.Version)
	if !w.cores[seat(lane.prefetcher())].(*prefetcherCore).rows || w.version[0] == want || w.cfg.spoilt+w.cfg.giveUp > 0 || w.team != nil {
		return
	}
	if w.gathered++; w.rows != want || d.p.Eval || !w.cfg.rowsFirst() {
		w.failf("%v: rows are gathered after %d updates of the table and %d of its rows, want %d", d.p, w.version[0], w.rows, want)
	}
}
