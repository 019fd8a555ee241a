package actors

// This file simulates disks, and the state slots into which layers' states are read, for the model
// test.

// stateAt says which state slot holds a layer's state, and which reads and writes of the state are
// done.
type stateAt struct {
	slot    int
	here    bool // it has been read
	flushes int  // in progress
}

// tierWorld simulates the disks of a run: which versions of states, tiles and gradients they hold.
type tierWorld struct {
	version []int            // by layer: number of updates of its state
	disk    []int            // by layer: version on the disk
	states  map[int]*stateAt // by layer
	params  map[[2]int]*paramsAt
	grads   []gradAt    // by layer
	slabs   map[int]int // by slab: the layer whose gradient landed last
}

// gradAt says which of a layer's gradients, numbered from 1, is where: landed is the last one that
// reached the host, disk the one on the disk, and slot the one in the state slot. 0: none.
type gradAt struct {
	landed, disk, slot int
	writes             int // in progress
}

// paramsAt says which layer's tile a param buffer holds. Each weight slot of a lane has a param
// buffer on the host, into which tiles on disks are read.
type paramsAt struct {
	layer, tile, version int
	here                 bool // it has been read
}

func newTierWorld(layers int) *tierWorld {
	return &tierWorld{version: make([]int, layers), disk: make([]int, layers), states: map[int]*stateAt{}, params: map[[2]int]*paramsAt{}, grads: make([]gradAt, layers), slabs: map[int]int{}}
}

// isOnDisk reports whether the state of a layer is on a disk.
func (c worldConfig) isOnDisk(layer int) bool { return c.stateOnDisk != nil && c.stateOnDisk[layer] }

// tileOnDisk reports whether the tile of a layer is on a disk.
func (c worldConfig) tileOnDisk(layer int) bool {
	return c.weightsOnDisk != nil && c.weightsOnDisk[layer]
}

// readParams checks, when the read of a tile from a disk begins, that its param buffer is free and
// that the disk has the tile's current version.
func (w *world) readParams(d readParams, lane laneID) {
	t, at := w.tier, [2]int{int(lane), d.Slot}
	if p := t.params[at]; p != nil && !p.here {
		w.failf("the tile of layer %d is read into buffer %d while that of layer %d is", d.Layer, d.Slot, p.layer)
	}
	if !w.cfg.tileOnDisk(d.Layer) || d.Slot >= w.cfg.depths.WeightSlots {
		w.failf("the tile of layer %d is read into buffer %d", d.Layer, d.Slot)
	}
	if s := t.states[d.Layer]; s != nil && s.flushes > 0 || t.disk[d.Layer] != w.version[d.Layer] {
		w.failf("version %d of layer %d is read, which is at version %d, slot %+v", t.disk[d.Layer], d.Layer, w.version[d.Layer], s)
	}
	t.params[at] = &paramsAt{layer: d.Layer, tile: d.Tile, version: t.disk[d.Layer]}
}

// needParams checks, when a tile is copied to the device, that the param buffer holds this tile at
// its current version. It checks only layers whose tiles are on disks.
func (w *world) needParams(d fetchWeights, lane laneID) {
	if !w.cfg.tileOnDisk(d.Layer) {
		return
	}
	if p := w.tier.params[[2]int{int(lane), d.Slot}]; p == nil || !p.here || p.tile != d.Tile || p.layer != d.Layer || p.version != w.version[d.Layer] {
		w.failf("layer %d, at version %d, is copied from buffer %d with %+v", d.Layer, w.version[d.Layer], d.Slot, p)
	}
}

// fetchState checks, when the read of a layer's state begins, that its slot is free and that the
// disk has the state's current version.
func (w *world) fetchState(d fetchState) {
	t := w.tier
	if t.states[d.Layer] != nil {
		w.failf("the state of layer %d is read while it is in slot %d", d.Layer, t.states[d.Layer].slot)
	}
	for l, s := range t.states {
		if s.slot == d.Slot {
			w.failf("the state of layer %d is read into slot %d, where layer %d is", d.Layer, d.Slot, l)
		}
	}
	if d.Slot < 0 || d.Slot >= w.cfg.depths.StateSlots {
		w.failf("there is no state slot %d", d.Slot)
	}
	if t.disk[d.Layer] != w.tier.version[d.Layer] {
		w.failf("version %d of layer %d is read, which is at version %d", t.disk[d.Layer], d.Layer, w.tier.version[d.Layer])
	}
	t.states[d.Layer] = &stateAt{slot: d.Slot}
	t.grads[d.Layer].slot = 0
}

// gradLanded notes that a layer's gradient has landed in slab d.Slab. It checks that layers with a
// slab of their own use that slab, and that the others use shared slabs.
func (w *world) gradLanded(d offloadGrad) {
	if turns := w.cfg.gradOnDisk != nil && w.cfg.gradOnDisk[d.Layer]; !w.cfg.creditSlabs() && (turns != (d.Slab >= w.cfg.layers) || !turns && d.Slab != d.Layer) {
		w.failf("the gradient of layer %d has landed in slab %d", d.Layer, d.Slab)
	}
	w.tier.grads[d.Layer].landed++
	w.tier.slabs[d.Slab] = d.Layer
}

// putGrad checks, when the write of a gradient to a disk begins, that the slab holds this layer's
// gradient.
func (w *world) putGrad(d putGrad) {
	g := &w.tier.grads[d.Layer]
	if g.writes++; !w.full[d.Slab] || w.tier.slabs[d.Slab] != d.Layer || !w.cfg.gradOnDisk[d.Layer] {
		w.failf("the gradient of layer %d is written from slab %d, full %t, with that of layer %d", d.Layer, d.Slab, w.full[d.Slab], w.tier.slabs[d.Slab])
	}
}

// gradPut notes that a gradient is on the disk. It checks that its slab was not reused while the
// gradient was written.
func (w *world) gradPut(d putGrad) {
	g := &w.tier.grads[d.Layer]
	if g.writes--; !w.full[d.Slab] || w.tier.slabs[d.Slab] != d.Layer {
		w.failf("slab %d was given away while the gradient of layer %d was written", d.Slab, d.Layer)
	}
	g.disk++
}

// fetchGrad checks the read of a gradient from a disk: the gradient must be written completely, and
// the layer's state must already be in a state slot, which then gets the gradient too.
func (w *world) fetchGrad(d fetchGrad) {
	w.needState(d.Layer, "given its gradient")
	if g := w.tier.grads[d.Layer]; g.writes > 0 || g.disk != g.landed || g.slot == g.disk {
		w.failf("the gradient of layer %d is read: %+v", d.Layer, g)
	}
}

// needGrad checks that a layer's update uses the gradient that landed last.
func (w *world) needGrad(e update) {
	g, onDisk := w.tier.grads[e.Layer], w.cfg.gradOnDisk != nil && w.cfg.gradOnDisk[e.Layer]
	if onDisk != (e.Slab == noSlab) || onDisk && g.slot != g.landed {
		w.failf("layer %d is updated from slab %d, its gradients are %+v", e.Layer, e.Slab, g)
	}
}

// needState checks that a layer's state, if it is on a disk, was read into memory before an action
// that needs it. `what` names the action in the error, such as "updated".
func (w *world) needState(layer int, what string) {
	if !w.cfg.isOnDisk(layer) {
		return
	}
	if s := w.tier.states[layer]; s == nil || !s.here {
		w.failf("layer %d is %s while its state is on the disk", layer, what)
	}
}

// mayLink checks a layer's save in a run whose checkpoints hard-link the files of states. When the
// save begins, the file must be completely written and have the state's current version.
func (w *world) mayLink(layer int) {
	if !w.cfg.links || !w.cfg.isOnDisk(layer) {
		return
	}
	if t := w.tier; t.states[layer].flushes > 0 || t.disk[layer] != t.version[layer] {
		w.failf("layer %d is linked while the disk has version %d of %d, and %d writes are under way", layer, t.disk[layer], t.version[layer], t.states[layer].flushes)
	}
}

// mayWrite checks that a layer's state file is not written while a checkpoint links it.
func (w *world) mayWrite(layer int) {
	for _, e := range w.async {
		if save, ok := e.do.(saveLayer); ok && w.cfg.links && save.Layer == layer {
			w.failf("the state of layer %d is written while it is linked", layer)
		}
	}
}

// dropState checks, when a layer's state is dropped from its state slot, that the disk has the same
// version.
func (w *world) dropState(d dropState) {
	t := w.tier
	s := t.states[d.Layer]
	if s == nil || !s.here || s.flushes > 0 || t.disk[d.Layer] != w.tier.version[d.Layer] {
		w.failf("the state of layer %d is dropped as %+v, with version %d of %d on the disk", d.Layer, s, t.disk[d.Layer], w.tier.version[d.Layer])
	}
	for _, e := range w.async {
		if save, ok := e.do.(saveLayer); ok && save.Layer == d.Layer {
			w.failf("the state of layer %d is dropped while it is being saved", d.Layer)
		}
		if read, ok := e.do.(fetchGrad); ok && read.Layer == d.Layer {
			w.failf("the state of layer %d is dropped while its gradient is read", d.Layer)
		}
	}
	delete(t.states, d.Layer)
}

// flushed notes that a layer's state is written to the disk.
func (w *world) flushed(layer int) {
	s := w.tier.states[layer]
	s.flushes--
	for _, e := range w.async {
		if r, ok := e.do.(readParams); ok && r.Layer == layer {
			w.failf("the tile of layer %d is read while it is written", layer)
		}
	}
	w.tier.disk[layer] = w.tier.version[layer]
}
