package actors

// This file is what the Stager does with gradients that wait for the norm on disks.
//
// Each is written from its slab, in turn with states, and the slab is returned. All of a step have been handed over when the
// Optimizer asks for them (GradsWanted), and only then they are read, so what belongs to a step that is skipped is never read. Those that are
// read are behind the state of a layer in its slot, and ahead of other states: their layers are updated first.

// stagedGrads is what the Stager knows of them.
type stagedGrads struct {
	onDisk  []bool // by layer: its gradient waits on a disk; nil: none does
	writing []int  // by layer: how many of its gradients are written, or to be written
	due     []bool // by layer: its gradient is wanted, and not being read
}

// setGradsOnDisk tells the core, by layer, whose gradients wait on disks; nil: none do.
func (c *stagerCore) setGradsOnDisk(onDisk []bool) {
	c.grads = stagedGrads{onDisk: onDisk, writing: make([]int, len(onDisk)), due: make([]bool, len(onDisk))}
}

// has says whether the gradient of layer l waits on a disk.
func (g *stagedGrads) has(l int) bool { return g.onDisk != nil && g.onDisk[l] }

// wantAll makes all gradients due.
func (g *stagedGrads) wantAll() { copy(g.due, g.onDisk) }

// putGrad writes the gradient of a layer from its slab to the disk.
type putGrad struct{ Layer, Slab int }

func (e putGrad) start(r *lane, w work) error {
	bytes := r.run.plan.GradExtentBytes(e.Layer)
	r.onDisk(stagerID, w, &r.disks.written, bytes, func() error {
		return r.named("write the gradient of", e.Layer, r.o.Home.PutGrad(e.Layer, r.slabs[e.Slab][:bytes]))
	})
	return nil
}

// gradWritten tells that putGrad is done.
type gradWritten struct{ GradMeasured }

// fetchGrad reads the gradient of a layer into the layer's state slot.
type fetchGrad struct{ Layer int }

func (e fetchGrad) start(r *lane, w work) error {
	r.onDisk(stagerID, w, &r.disks.read, r.run.plan.GradExtentBytes(e.Layer), func() error {
		return r.named("read the gradient of", e.Layer, r.o.Home.FetchGrad(e.Layer))
	})
	return nil
}

// gradRead tells that fetchGrad is done.
type gradRead struct{ Layer int }

// putGrad has a gradient written behind what is to be written already.
func (c *stagerCore) putGrad(m GradMeasured) {
	c.grads.writing[m.Layer]++
	c.toWrite = append(c.toWrite, work{do: putGrad{Layer: m.Layer, Slab: m.Slab}, done: []send{{stagerID, gradWritten{m}}}})
}

// gradWritten returns the slab of a gradient.
func (c *stagerCore) gradWritten(m gradWritten) []effect {
	c.writing = false
	c.grads.writing[m.Layer]--
	return []effect{send{m.Lane.offloader(), SlabFreed{m.Slab}}}
}

// readGrad reads the next gradient that is wanted: of the layers in state slots that of the one which is updated first, if
// it has been written. Their states are all there, since nothing is being read.
func (c *stagerCore) readGrad() (work, bool) {
	if c.reading || c.grads.onDisk == nil {
		return work{}, false
	}
	for i := c.updates; i < c.reads; i++ {
		l := c.order[i%len(c.order)]
		if c.grads.due[l] && c.grads.writing[l] == 0 {
			c.grads.due[l] = false
			return work{do: fetchGrad{l}, done: []send{{stagerID, gradRead{l}}}}, true
		}
	}
	return work{}, false
}

// gradRead tells that a layer can be updated.
func (c *stagerCore) gradRead(l int) []effect {
	c.reading = false
	return []effect{send{optimizerID, StateFetched{Layer: l, Round: c.round}}}
}
