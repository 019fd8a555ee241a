package actors

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The Stager exists where the state of some layers (lower halves and planes) is on disks. It owns the
// state slots. It reads ahead into them in the order in which layers are updated, which is the same
// in every step, and so from step to step: when the last layer of a step is updated, the first ones of
// the next are in memory. An updated layer is written back, and its slot is free when that is done
// and nobody saves it any more.
//
// Where a layer's tile is on a disk too, it is read and written with the state, and the Stager tells the Prefetchers that
// the layer is updated, when both are written.
//
// Where a checkpoint links the files that states are written to (Options.LinkStates), the Stager tells the Checkpointer when a layer that
// is to be saved is written. As always its slot is free when it is saved, and it is written again only out of a slot: so the
// file is linked between the one write and the next.
//
// A gradient that waits for the norm on a disk is written when it has been measured, which returns its slab, and is read
// into the state slot of its layer when the norm is known (stager_grads.go).
//
// Layers that are saved although no step updates them are shown to the Checkpointer in a round of their own,
// in the order of the layers; what had been read ahead is dropped then, and read again.

// stagerCore is the pure part of the Stager.
type stagerCore struct {
	order         []int // the layers that are away, in the order of updates
	updates       int   // how many layers are updated so far, in all steps
	reads         int   // how many are read for updates, or being read
	free          []int // state slots
	staged        map[int]*stagedLayer
	saved         map[int]int // by layer, saves that ended before the Stager heard of the update
	round         int         // counts the rounds
	toShow        []int       // layers that are to be shown
	shownUnsaved  int         // those of them that are shown and not saved
	reading       bool        // one state is read at a time: a disk reads large pieces fastest
	writing       bool        // and one is written
	toWrite       []work      // what is to be written, in order
	grads         stagedGrads
	lanes         int
	weightsOnDisk []bool // by layer: its tile is on a disk too; nil: none is
	links         bool   // checkpoints link the files that states are written to
}

// stagedLayer is a layer in a state slot.
type stagedLayer struct {
	slot    int
	round   int  // in which it was read
	read    bool // it has been read
	shown   bool // it is for the Checkpointer alone
	updated bool
	flushed bool
	saving  bool // the Checkpointer has not written it yet
	update  LayerUpdated
}

// newStagerCore makes a Stager of these layers and so many slots.
func newStagerCore(order []int, slots int) *stagerCore {
	return &stagerCore{order: order, free: ids(slots), staged: map[int]*stagedLayer{}, saved: map[int]int{}}
}

// stagingOrder is the order in which the layers that are away are updated: with clipping that of the forward, else
// that in which gradients are complete.
func stagingOrder(onDisk []bool, into []int, clip bool) []int {
	order := ids(len(into))
	if !clip {
		order = backwardOrder(into)
	}
	return slices.DeleteFunc(order, func(l int) bool { return !onDisk[l] })
}

// fetchState reads a layer's state into a slot.
type fetchState struct{ Layer, Slot int }

// stateRead tells that fetchState is done.
type stateRead struct{ Layer int }

// flushState writes a layer's state from its slot to the disk.
type flushState struct{ Layer int }

// stateWritten tells that flushState is done.
type stateWritten struct{ Layer int }

// dropState frees the memory of a layer's state.
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
			s.flushed = true // nothing has changed
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

// beginRound begins a round: all layers are to be shown, behind those of a round before it, and what was read
// ahead is dropped.
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

// read tells of a layer that has been read whoever it was read for.
func (c *stagerCore) read(l int) []effect {
	s := c.staged[l]
	s.read, c.reading = true, false
	switch {
	case s.shown:
		return []effect{send{checkpointerID, StateFetched{Layer: l, Round: c.round}}}
	case s.round < c.round:
		return c.drop(l)
	case c.grads.has(l):
		return nil // until its gradient is there too
	}
	return []effect{send{optimizerID, StateFetched{Layer: l, Round: c.round}}}
}

// release frees the slot of a layer when its state is on the disk and the Checkpointer has what it saves.
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

// advance writes what is to be written, and reads what comes next.
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
	if !ok || c.reading || len(c.free) == 0 || c.staged[l] != nil { // a layer that is in a slot still is read when it has left that
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

// next is the layer that is read next: in a round one that is to be shown, else one that is updated next.
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

// named is err behind words that say what failed for which layer.
func (r *run) named(what string, layer int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, r.names[layer], err)
}

// diskTraffic counts what a run reads from and writes to disks, but for checkpoints.
type diskTraffic struct {
	read, written atomic.Int64 // bytes, as they are in memory

	mu    sync.Mutex
	works int           // that are under way
	since time.Duration // when the first of these began
	busy  time.Duration // during which some were, until then
}

// count notes at time now that a work begins, or with n −1 that one ends.
func (d *diskTraffic) count(n int, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.works > 0 {
		d.busy += now - d.since
	}
	d.works, d.since = d.works+n, now
}

// busyUntil is for how long, until now, some work has been under way.
func (d *diskTraffic) busyUntil(now time.Duration) time.Duration {
	d.count(0, now)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy
}

// onDisk does a work of actor id, which reads so many bytes from disks or writes them there, on a goroutine of its own. They are counted
// in moved when it is done, as those that compression spares are (host.Home.Spared).
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
