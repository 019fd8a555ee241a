package actors

// This file has the Stager's part for gradients that wait on disks until the gradient norm of the step is known.
//
// Each gradient is written from its slab, in turn with states, and the slab is freed. The Optimizer requests the
// gradients with GradsWanted after it has handed over all gradients of the step. Only then are they read, so a skipped
// step reads none. A gradient is read into its layer's state slot after the layer's state. Gradients are read before
// other states, because layers whose state is in memory are updated first.

// stagedGrads has what the Stager knows of the gradients that wait on disks.
type stagedGrads struct {
	onDisk  []bool // by layer: its gradient waits on a disk; nil: none does
	writing []int  // by layer: how many of its gradients are being written or wait to be written
	due     []bool // by layer: its gradient is wanted, and its read has not begun
}

// setGradsOnDisk tells the Stager, by layer, whether the layer's gradient waits on a disk for the norm. nil: none does.
func (c *stagerCore) setGradsOnDisk(onDisk []bool) {
	c.grads = stagedGrads{onDisk: onDisk, writing: make([]int, len(onDisk)), due: make([]bool, len(onDisk))}
}

// has reports whether layer l's gradient waits on a disk for the norm over all layers.
func (g *stagedGrads) has(l int) bool { return g.onDisk != nil && g.onDisk[l] }

// wantAll makes the gradients of all layers that wait on disks due: each will be read.
func (g *stagedGrads) wantAll() { copy(g.due, g.onDisk) }

// putGrad is the task of writing the gradient of a layer from its slab to the disk.
type putGrad struct{ Layer, Slab int }

func (e putGrad) start(r *lane, w work) error {
	bytes := r.run.plan.GradExtentBytes(e.Layer)
	r.onDisk(stagerID, w, &r.disks.written, bytes, func() error {
		return r.named("write the gradient of", e.Layer, r.o.Home.PutGrad(e.Layer, r.slabs[e.Slab][:bytes]))
	})
	return nil
}

// gradWritten tells the Stager that a layer's gradient is written to the disk.
type gradWritten struct{ GradMeasured }

// fetchGrad is the task of reading the gradient of a layer into the layer's state slot.
type fetchGrad struct{ Layer int }

func (e fetchGrad) start(r *lane, w work) error {
	r.onDisk(stagerID, w, &r.disks.read, r.run.plan.GradExtentBytes(e.Layer), func() error {
		return r.named("read the gradient of", e.Layer, r.o.Home.FetchGrad(e.Layer))
	})
	return nil
}

// gradRead tells the Stager that a layer's gradient is read from the disk.
type gradRead struct{ Layer int }

// putGrad queues the write of a measured gradient to its disk.
func (c *stagerCore) putGrad(m GradMeasured) {
	c.grads.writing[m.Layer]++
	c.toWrite = append(c.toWrite, work{do: putGrad{Layer: m.Layer, Slab: m.Slab}, done: []send{{stagerID, gradWritten{m}}}})
}

// gradWritten returns the slab of a gradient to the Offloader, because the gradient is now on its
// disk.
func (c *stagerCore) gradWritten(m gradWritten) []effect {
	c.writing = false
	c.grads.writing[m.Layer]--
	return []effect{send{m.Lane.offloader(), SlabFreed{m.Slab}}}
}

// readGrad returns the work that reads the next gradient that the Optimizer has requested; false:
// none can be read now. Only layers whose state is in a state slot and whose gradient is completely
// written are candidates. It takes the candidate that is updated first. All states in slots are
// complete, because no read is in progress.
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

// gradRead reports to the Optimizer that layer l can be updated: its state and its gradient are in memory.
func (c *stagerCore) gradRead(l int) []effect {
	c.reading = false
	return []effect{send{optimizerID, StateFetched{Layer: l, Round: c.round}}}
}
