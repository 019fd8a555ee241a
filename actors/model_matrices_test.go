package actors

import "mt/layers/schedule"

// This file simulates matrices that Muon orthogonalizes on the device, for the model test.

// optimizer returns the description of the run with which the Optimizer's core is made, for a
// simulated run with this number of lanes.
func (cfg worldConfig) optimizer(spec schedule.Spec, lanes int) optimizerSpec {
	x := optimizerSpec{lanes: lanes, clip: cfg.clip, into: summedIn(cfg.layers, cfg.tied), distributed: cfg.ranks > 1,
		stateOnDisk: cfg.stateOnDisk, gradOnDisk: cfg.gradOnDisk, weightsOnDisk: cfg.weightsOnDisk, matrixBuffers: cfg.depths.MatrixBuffers}
	if x.distributed {
		x.gradOnDisk, x.weightsOnDisk = nil, nil
	}
	for l := range cfg.layers {
		if cfg.matrices > 0 && !x.distributed {
			x.matrices, x.laneOf = append(x.matrices, cfg.matricesOf(l)), append(x.laneOf, laneID(spec.On(l)))
		}
	}
	return x
}

// matrixAt says which matrix a matrix buffer holds, and which works on it are done.
type matrixAt struct {
	layer, matrix int
	done          int // finished works: prepared, orthogonalized
	busy          bool
}

// checkUpdate checks that a layer is not updated while the Checkpointer writes it.
func (w *world) checkUpdate(layer int) {
	if w.once(optimizerRole).(*optimizerCore).saving[layer] {
		w.failf("layer %d is updated while it is being saved", layer)
	}
}

// moved counts a finished work of a layer's update: one for its units and one for each matrix. The
// last work advances the layer's version.
func (w *world) moved(layer int) {
	if w.parts[layer]++; w.parts[layer] == 1+w.cfg.matricesOf(layer) {
		w.parts[layer] = 0
		w.version[layer]++
		w.tier.version[layer]++
	}
}

// matrix checks each begin (begins) and end of a work on a matrix of Muon. The three works on the
// matrix in one buffer must come in their order, in a buffer of the layer's lane, and the first one
// needs the layer's complete gradient.
func (w *world) matrix(do any, begins bool) {
	var at matrixAt
	var buffer [2]int
	switch d := do.(type) {
	case prepareMatrix:
		at, buffer = matrixAt{d.Of.Layer, d.Matrix, 0, begins}, [2]int{int(d.Lane), d.Buffer}
		// Only shared slabs (creditSlabs) are checked for a gradient. A layer's own slab may be
		// filled again before the message that frees it is handled.
		if w.checkUpdate(d.Of.Layer); w.cfg.creditSlabs() && !w.full[d.Of.Slab] {
			w.failf("matrix %d of layer %d is prepared from slab %d, where no gradient is", d.Matrix, d.Of.Layer, d.Of.Slab)
		}
	case orthogonalize:
		at, buffer = matrixAt{d.Layer, d.Matrix, 1, begins}, [2]int{int(d.Lane), d.Buffer}
	case applyMatrix:
		at, buffer = matrixAt{d.Of.Layer, d.Matrix, 2, begins}, [2]int{int(d.Lane), d.Buffer}
		w.checkUpdate(d.Of.Layer)
	}
	if lane := w.cfg.lane; lane != nil && lane[at.layer] != buffer[0] || lane == nil && buffer[0] != 0 {
		w.failf("a matrix of layer %d is in a buffer of lane %d", at.layer, buffer[0])
	}
	was, used := w.matrices[buffer]
	switch {
	case begins && at.done == 0:
		if used {
			w.failf("matrix buffer %v has %+v when %+v is prepared", buffer, was, at)
		}
	case begins:
		if want := (matrixAt{at.layer, at.matrix, at.done, false}); was != want {
			w.failf("matrix buffer %v has %+v, want %+v", buffer, was, want)
		}
	}
	w.matrices[buffer] = at
	if begins {
		return
	}
	at.done++
	w.matrices[buffer] = at
	if at.done == 3 {
		delete(w.matrices, buffer)
		w.moved(at.layer)
	}
}
