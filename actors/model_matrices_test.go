package actors

import "mt/layers/schedule"

// This file is the model test's part for matrices.

// optimizer returns the optimizerSpec of a world with this number of lanes.
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

// matrixAt is the matrix in a matrix buffer, and its progress.
type matrixAt struct {
	layer, matrix int
	done          int // finished works: prepared, orthogonalized
	busy          bool
}

// checkUpdate checks that a layer is not updated while it is written.
func (w *world) checkUpdate(layer int) {
	if w.once(optimizerRole).(*optimizerCore).saving[layer] {
		w.failf("layer %d is updated while it is being saved", layer)
	}
}

// moved counts a finished work of a layer's update. The last work brings the layer to its version.
func (w *world) moved(layer int) {
	if w.parts[layer]++; w.parts[layer] == 1+w.cfg.matricesOf(layer) {
		w.parts[layer] = 0
		w.version[layer]++
		w.tier.version[layer]++
	}
}

// matrix checks, at the begin and at the end of a work on a matrix, that it is the next work of the buffer's matrix and
// that the gradient is complete.
func (w *world) matrix(do any, begins bool) {
	var at matrixAt
	var buffer [2]int
	switch d := do.(type) {
	case prepareMatrix:
		at, buffer = matrixAt{d.Of.Layer, d.Matrix, 0, begins}, [2]int{int(d.Lane), d.Buffer}
		// With clipping the slab may be filled before the message that it is free.
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
