package actors

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The Stager exists if some layers' states (lower halves and planes) are on disks. It owns the state slots. It reads
// states ahead in the order of updates, which is the same in every step. When the last layer of a step is updated, the
// first states of the next step are already in memory. An updated state is written back. Its slot is free when the
// write is done and no save needs it.
//
// If a layer's tile is on a disk too, it is read and written with the state. The Stager reports the layer to the
// Prefetchers when both are written.
//
// If checkpoints link the states' files (Options.LinkStates), the Stager tells the Checkpointer when the state of a
// layer to be saved is written. The slot stays in use until the layer is saved, and a state is written only from a
// slot. So the file is linked between one write and the next.
//
// A gradient that waits for the norm on a disk is written after it is measured, which frees its slab. It is read into
// its layer's state slot when the norm is known (stager_grads.go).
//
// For a checkpoint without an update, the Stager reads the states of all layers once, in layer order, and shows each to
// the Checkpointer (a save round). States that were read ahead for updates are dropped and read again.

// stagerCore is the pure part of the Stager.
type stagerCore struct {
	order         []int // the layers with states on disks, in the order of updates
	updates       int   // updated layers, over all steps
	reads         int   // states read for updates, or being read
	free          []int // free state slots
	staged        map[int]*stagedLayer
	saved         map[int]int // by layer: saves that ended before its StateUpdated arrived
	round         int         // save rounds so far
	toShow        []int       // layers to show to the Checkpointer
	shownUnsaved  int         // layers shown and not yet saved
	reading       bool        // one read at a time: a disk is fastest with large reads
	writing       bool        // one write at a time
	toWrite       []work      // pending writes, in order
	grads         stagedGrads
	lanes         int
	weightsOnDisk []bool // by layer: its tile is on a disk too; nil: none is
	links         bool   // checkpoints link the states' files
}

// stagedLayer is a layer whose state is in a state slot or on its way there.
type stagedLayer struct {
	slot    int
	round   int  // the save round at the start of its read
	read    bool // the read is done
	shown   bool // for the Checkpointer only
	updated bool
	flushed bool
	saving  bool // the Checkpointer has not yet written it
	update  LayerUpdated
}

// newStagerCore makes a Stager for layers whose states are on disks. order lists them in the order of updates; slots is
// the number of state slots.
func newStagerCore(order []int, slots int) *stagerCore {
	return &stagerCore{order: order, free: ids(slots), staged: map[int]*stagedLayer{}, saved: map[int]int{}}
}

// stagingOrder returns the layers on disks (onDisk) in the order of their updates. If gradients are clipped by their
// norm over all layers (clip), updates go in forward order. Otherwise they go in the order in which gradients complete.
// Layer l's gradient is added to that of layer into[l], which is l itself unless two layers share a table.
func stagingOrder(onDisk []bool, into []int, clip bool) []int {
	order := ids(len(into))
	if !clip {
		order = backwardOrder(into)
	}
	return slices.DeleteFunc(order, func(l int) bool { return !onDisk[l] })
}

// fetchState is the task of reading a layer's state from its disk into a state slot.
type fetchState struct{ Layer, Slot int }

// stateRead tells the Stager that a layer's state is read from its disk.
type stateRead struct{ Layer int }

// flushState is the task of writing a layer's state from its slot to the disk.
type flushState struct{ Layer int }

// stateWritten tells the Stager that a layer's state is written to its disk.
type stateWritten struct{ Layer int }

// dropState is the task of freeing the slot with a layer's state. The state is on its disk and in the checkpoint, if
// there is one. Or the state was read ahead for an update, and a save that has begun needs the slots for its own reads.
type dropState struct{ Layer int }

func (c *stagerCore) step(msg message) []effect {
	var out []effect
	switch m := msg.(type) {
	case begin:
	case stateRead:
		out = c.read(m.Layer)
	case StateUpdated:
		s := c.staged[m.Updated.Layer]
		c.updates++
		s.updated, s.saving, s.update = true, m.Updated.Save, m.Updated
		if m.Updated.Save && c.saved[m.Updated.Layer] > 0 {
			c.saved[m.Updated.Layer]--
			s.saving = false
		}
		c.toWrite = append(c.toWrite, work{do: flushState{m.Updated.Layer}, done: []send{{stagerID, stateWritten{m.Updated.Layer}}}})
	case stateWritten:
		c.writing = false
		s := c.staged[m.Layer]
		s.flushed = true
		if c.weightsOnDisk != nil && c.weightsOnDisk[m.Layer] {
			out = s.update.toPrefetchers(c.lanes)
		}
		if c.links && s.saving {
			out = append(out, send{checkpointerID, StateFlushed(m)})
		}
		out = append(out, c.release(m.Layer)...)
	case LayerSaved:
		s := c.staged[m.Layer]
		if s == nil || !s.saving {
			c.saved[m.Layer]++
			return nil
		}
		s.saving = false
		if s.shown {
			c.shownUnsaved--
			s.flushed = true // unchanged
		}
		out = c.release(m.Layer)
	case StatesWanted:
		out = c.beginRound()
	case GradMeasured:
		c.putGrad(m)
	case gradWritten:
		out = c.gradWritten(m)
	case GradsWanted:
		c.grads.wantAll()
	case gradRead:
		out = c.gradRead(m.Layer)
	default:
		panic(unexpected(stagerID, msg))
	}
	return append(out, c.advance()...)
}

// beginRound begins a save round: it reads the states of all layers on disks and shows each to the
// Checkpointer. Layers that an earlier round has not shown yet come first. States that were read
// ahead for updates are dropped, and will be read again for the updates.
func (c *stagerCore) beginRound() (out []effect) {
	c.round++
	c.toShow = append(c.toShow, slices.Sorted(slices.Values(c.order))...)
	c.reads = c.updates
	for _, l := range c.order {
		if s := c.staged[l]; s != nil && s.read && !s.updated && !s.shown {
			out = append(out, c.drop(l)...)
		}
	}
	return out
}

// read is called when layer l's state has been read. It then tells the actor that needs the state:
// the Checkpointer in a save round, otherwise the Optimizer.
func (c *stagerCore) read(l int) []effect {
	s := c.staged[l]
	s.read, c.reading = true, false
	switch {
	case s.shown:
		return []effect{send{checkpointerID, StateFetched{Layer: l, Round: c.round}}}
	case s.round < c.round:
		return c.drop(l)
	case c.grads.has(l):
		return nil // waits for its gradient
	}
	return []effect{send{optimizerID, StateFetched{Layer: l, Round: c.round}}}
}

// release frees the slot of a layer. It returns nil while the state is not yet written to the disk or not yet saved in
// a checkpoint.
func (c *stagerCore) release(l int) []effect {
	if s := c.staged[l]; !s.flushed || s.saving {
		return nil
	}
	return c.drop(l)
}

func (c *stagerCore) drop(l int) []effect {
	c.free = append(c.free, c.staged[l].slot)
	delete(c.staged, l)
	return []effect{work{do: dropState{l}}}
}

// advance starts the next write to disks, unless a write is in progress, and the next read, unless
// a read is in progress.
func (c *stagerCore) advance() (out []effect) {
	if len(c.toWrite) > 0 && !c.writing {
		out = append(out, c.toWrite[0])
		c.toWrite, c.writing = c.toWrite[1:], true
	}
	if w, ok := c.readGrad(); ok {
		c.reading = true
		return append(out, w)
	}
	l, ok := c.next()
	if !ok || c.reading || len(c.free) == 0 || c.staged[l] != nil { // a layer that still has a slot is read again after it has left the slot
		return out
	}
	s := &stagedLayer{slot: c.free[0], round: c.round}
	c.free, c.staged[l], c.reading = c.free[1:], s, true
	if len(c.toShow) > 0 {
		c.toShow = c.toShow[1:]
		c.shownUnsaved++
		s.shown, s.saving = true, true
	} else {
		c.reads++
	}
	return append(out, work{do: fetchState{Layer: l, Slot: s.slot}, done: []send{{stagerID, stateRead{l}}}})
}

// next returns the next layer whose state to read: in a save round the next one to show to the Checkpointer, otherwise
// the next one to update. ok is false if no state has to be read.
func (c *stagerCore) next() (layer int, ok bool) {
	switch {
	case len(c.toShow) > 0:
		return c.toShow[0], true
	case c.shownUnsaved > 0 || c.reads-c.updates == len(c.order):
		return 0, false
	}
	return c.order[c.reads%len(c.order)], true
}

func (e fetchState) start(r *lane, w work) error {
	r.onDisk(stagerID, w, &r.disks.read, r.run.plan.StagedBytes(e.Layer), func() error {
		return r.named("read the state of", e.Layer, r.o.Home.Fetch(e.Layer, e.Slot))
	})
	return nil
}

func (e flushState) start(r *lane, w work) error {
	r.onDisk(stagerID, w, &r.disks.written, r.run.plan.StagedBytes(e.Layer), func() error {
		return r.named("write the state of", e.Layer, r.o.Home.Flush(e.Layer))
	})
	return nil
}

func (e dropState) start(r *lane, _ work) error {
	r.o.Home.Drop(e.Layer)
	return nil
}

// named returns err with the failed action (what) and the layer's name before it; nil for nil.
func (r *run) named(what string, layer int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, r.names[layer], err)
}

// diskTraffic counts the bytes that a run reads from and writes to disks, and the time for which
// disks are busy. Checkpoints are not counted.
type diskTraffic struct {
	read, written atomic.Int64 // bytes, uncompressed

	mu    sync.Mutex
	works int           // works in progress
	since time.Duration // time of the last change of works
	busy  time.Duration // time with a work in progress, up to since
}

// count changes the number of reads and writes in progress by n at time now: 1 when one begins, −1
// when it ends. It adds the time since the last change to d.busy, if any was in progress.
func (d *diskTraffic) count(n int, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.works > 0 {
		d.busy += now - d.since
	}
	d.works, d.since = d.works+n, now
}

// busyUntil returns for how long at least one read or write was in progress, from the start of the
// run to now.
func (d *diskTraffic) busyUntil(now time.Duration) time.Duration {
	d.count(0, now)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy
}

// onDisk does work w of actor id on a goroutine. f reads or writes this many bytes on a disk. When
// f is done, the bytes are added to moved. The bytes are counted uncompressed; host.Home.Spared
// counts the bytes that compression saves.
func (r *run) onDisk(id address, w work, moved *atomic.Int64, bytes int64, f func() error) {
	r.hub.async(id, w, func() (any, error) {
		r.disks.count(1, r.hub.now())
		defer func() { r.disks.count(-1, r.hub.now()) }()
		err := f()
		if err == nil {
			moved.Add(bytes)
		}
		return nil, err
	})
}
