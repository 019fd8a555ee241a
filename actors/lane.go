package actors

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"mt/base/accounts"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/layers"
	"mt/layers/schedule"
	"mt/plan"
)

// run is one run of the pipeline: its lanes, and everything that a run has once, such as slabs.
type run struct {
	o         *Options
	plan      *plan.Run
	hub       *hub
	schedule  schedule.Spec
	names     []string        // names of the layers, for messages
	tiles     []layers.Tile   // indexed by schedule.Visit.Tile
	gradients []plan.Gradient // by layer
	gradBytes int64           // bytes of one gradient element on the host
	slabs     [][]byte        // sizes: plan.Run.SlabBytes
	passage   []byte          // host memory for activations between lanes
	lanes     []*lane
	// registered is the pinned host memory of all lanes, in one list. It is pinned together: a device pins whole pages,
	// and one page may hold memory of two lanes.
	registered [][]byte
	// registering is the memory of registered, in lists by the time of its first use in a step.
	registering [usedBackward + 1][][]byte

	comm     *rankComm                        // nil: there is one rank
	updaters []func(*host.LayerState, update) // by layer: the function that updates it

	disks diskTraffic

	saving atomic.Bool // a save is open

	// For the Reporter only: the clock and the counters at its last report.
	lastStep  time.Duration // by the hub's clock
	lastMoved linkBytes
	lastBusy  time.Duration // busy time of disks

	closers  []func()
	closeErr error // the first error from closing a stream
}

// lane is a device with its streams and the run's memory for it: slots, buffers, events, and host memory for copies.
// Everything is allocated before the first step, in the sizes that package plan gives.
type lane struct {
	*run
	plan              *plan.Run // the plan of this lane
	index             laneID
	dev               device.Device
	ops               *layers.Templates
	kinds             []layers.Kind  // by layer
	h2d, compute, d2h *countedStream // h2d copies weights and batches; d2h copies gradients, losses and routings
	// in and out copy activations from and to the host. They are separate from h2d and d2h, so that activations and
	// weights or gradients never wait for each other. nil: no activation is copied.
	in, out *countedStream
	ups     []*countedStream // the streams that copy to the device
	peer    *countedStream   // copies into other lanes' slots; nil: the device reaches no other lane
	reaches []bool           // by lane: the device can copy into that lane's slots

	weights    []slot      // of all classes, class by class
	hostTile   []tileView  // by layer: finds a tile on the host
	params     [][]byte    // by weight slot: its param buffer; empty if all tiles are in memory
	gradPlaces []gradPlace // by layer: the place where its gradient is summed
	gradBufs   []slot
	narrow     device.Mem // bf16 copy of a gradient before its copy to the host
	acts       []slot
	state      func(s *slot, tokens int) layers.Hidden // views a hidden state in an activation slot
	hooks      []laneHook                              // run beside launches
	saved      [][]layers.Kept                         // by layer and micro-batch of the current pass: slices of savedMem
	savedMem   []layers.Kept                           // by layer: memory that its forward fills for its backward; empty if none
	workspace  device.Mem
	matrices   *matrixStaging // nil: no matrix is orthogonalized
	batches    []batchSlot
	experts    experts
	spills     []byte // host memory for activations without a slot
	scratch    []byte // host memory for launches, if hidden states are on the host
	lossHost   []byte // host memory for the losses of a batch

	repeats       *repeater // nil: each launch of an expert is made anew
	expertTraffic expertTraffic
	stalls        *stalls
	watch         laneWatch
}

// tileView returns the host memory of bytes [from, from+bytes) of a layer's tile. The device copies
// these bytes into weight slot s for tile t, or computes on them in place.
type tileView func(t layers.Tile, s slot, layer int, from, bytes int64) []byte

// newRun makes a run. It allocates the memory that exists once, such as the slabs, and then the lanes. On an error it
// frees everything.
func newRun(o *Options) (*run, error) {
	r := &run{o: o, plan: o.Plan, schedule: o.Plan.Schedule(), tiles: layers.Tiles(o.Plan.Layouts, o.Plan.Spec), gradients: o.Plan.Gradients(), gradBytes: o.Plan.GradBytes()}
	for _, l := range r.schedule.Layers {
		r.names = append(r.names, l.Name)
	}
	for _, bytes := range r.plan.SlabBytes() {
		slab, err := r.newArena(accounts.GradientSlabs, bytes)
		if err != nil {
			_ = r.close() // err is the first error
			return nil, fmt.Errorf("prepare the pipeline: %w", err)
		}
		r.slabs = append(r.slabs, slab)
	}
	if bytes := r.plan.PassageBytes(); bytes > 0 {
		var err error
		if r.passage, err = r.newArena(accounts.Passage, bytes); err != nil {
			_ = r.close() // err is the first error
			return nil, fmt.Errorf("prepare the pipeline: %w", err)
		}
	}
	if err := r.joinRanks(); err != nil {
		_ = r.close() // err is the first error
		return nil, fmt.Errorf("prepare the pipeline: %w", err)
	}
	r.chooseUpdaters()
	return r, nil
}

func (r *run) newArena(p accounts.Purpose, bytes int64) ([]byte, error) {
	if r.o.predicted != nil {
		return r.o.predicted.blank(bytes)
	}
	a, err := host.NewArena(p, bytes, r.o.Pool)
	if err != nil {
		return nil, err
	}
	r.onClose(func() { r.comm.whenIdle(func() { _ = a.Close() }) })
	return a.Bytes(), nil
}

// newLane allocates the memory, streams and events of lane number index on device dev. Also after
// an error, the run's close frees them.
func newLane(s *run, index laneID, dev device.Device) (*lane, error) {
	r := &lane{run: s, watch: noWatch{}, plan: s.plan.On(int(index)), index: index, dev: dev}
	for l := range r.plan.Layouts {
		r.kinds = append(r.kinds, r.plan.Kind(l))
	}
	r.repeats = newRepeater(s.tiles, dev)
	for _, step := range []func() error{r.openStreams, r.allocWeights, r.allocParams, r.allocGrads, r.allocActivations, r.allocExperts, r.allocBatches, r.makeTemplates, r.makeStalls, r.allocMatrices} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("prepare the pipeline: %w", err)
		}
	}
	return r, nil
}

// do starts the work w, which a core of one of the lane's actors has requested.
func (r *lane) do(w work) error { return w.do.start(r, w) }

// close frees everything in reverse order of allocation. It returns the first error from closing a
// stream. Such an error is a failure of the device that no notification has reported to the run.
func (r *run) close() error {
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i]()
	}
	r.closers = nil
	return r.closeErr
}

func (r *run) onClose(f func()) { r.closers = append(r.closers, f) }

// slab views n elements of a gradient in slab number i, from element off.
func (r *run) slab(i int, off, n int64) optim.Grad { return r.gradIn(r.slabs[i], off, n) }

// gradIn views n elements of a gradient in host memory mem, from element off.
func (r *run) gradIn(mem []byte, off, n int64) optim.Grad {
	w := r.gradBytes
	return optim.Grad{Data: mem[off*w : (off+n)*w], BF16: r.plan.GradBF16, Elems: n}
}

func (r *lane) alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	m, err := r.dev.Alloc(p, max(bytes, device.Align))
	if err == nil {
		r.onClose(func() { r.dev.Free(m) })
	}
	return m, err
}

func (r *lane) allocHost(bytes int64) ([]byte, error) {
	b, err := r.dev.AllocHost(max(bytes, device.Align))
	if err == nil {
		r.onClose(func() { r.dev.FreeHost(b) })
	}
	return b, err
}

func (r *lane) openStreams() error {
	type named struct {
		name string
		to   **countedStream
	}
	all := []named{{"h2d", &r.h2d}, {"compute", &r.compute}, {"d2h", &r.d2h}}
	if r.plan.SpillBytes() > 0 || r.plan.PassageBytes() > 0 || r.plan.KeptSlots > 0 {
		all = append(all, named{"activations in", &r.in}, named{"activations out", &r.out})
	}
	for _, s := range all {
		if err := r.openStream(s.name, s.to); err != nil {
			return err
		}
	}
	if r.ups = []*countedStream{r.h2d}; r.in != nil {
		r.ups = append(r.ups, r.in)
	}
	return nil
}

func (r *lane) openStream(name string, to **countedStream) error {
	s, err := r.dev.NewStream(name)
	if err != nil {
		return err
	}
	*to = &countedStream{Stream: s, watch: unwatched{s}}
	r.onClose(func() {
		if err := s.Close(); r.closeErr == nil {
			r.closeErr = err
		}
	})
	return nil
}

// streams lists the streams of the lane's device with their names.
func (r *lane) streams() []namedStream {
	all := []namedStream{{"h2d", r.h2d}, {"compute", r.compute}, {"d2h", r.d2h}}
	if r.in != nil {
		all = append(all, namedStream{"activations in", r.in}, namedStream{"activations out", r.out})
	}
	if r.peer != nil {
		all = append(all, namedStream{"peer", r.peer})
	}
	if m := r.matrices; m != nil {
		all = append(all, namedStream{"matrices up", m.up}, namedStream{"matrices", m.compute}, namedStream{"matrices down", m.down})
	}
	return all
}

// namedStream is a stream and its name in traces.
type namedStream struct {
	name string
	*countedStream
}

func (r *lane) allocActivations() (err error) {
	p := r.plan
	onDevice, onHost := p.ActivationSlotBytes()
	if r.acts, err = r.makeSlots(accounts.Activations, p.Depths.ActivationSlots, onDevice); err != nil {
		return err
	}
	kept, err := r.makeSlots(accounts.Saved, p.KeptSlots, p.KeptSlotBytes())
	if err != nil {
		return err
	}
	r.acts = append(r.acts, kept...)
	if r.state = r.onDevice; p.Spec.OnHost {
		x := statesOnHost{r}
		r.state, r.hooks = x.state, append(r.hooks, x)
	}
	for i := range r.acts {
		if onHost > 0 {
			if r.acts[i].host, err = r.pinned(accounts.HiddenStates, onHost, usedAtOnce); err != nil {
				return err
			}
		}
	}
	if bytes := p.ScratchBytes(); bytes > 0 {
		if r.scratch, err = r.pinned(accounts.WaitingHeads, bytes, usedBetween); err != nil {
			return err
		}
	}
	if r.workspace, err = r.alloc(accounts.Workspace, p.WorkspaceBytes()); err != nil {
		return err
	}
	r.savedMem = make([]layers.Kept, len(p.Layouts))
	for l := range p.Layouts {
		switch bytes := p.SavedBytes(l); {
		case bytes > 0 && p.SavedOnHost(l):
			r.savedMem[l].Host, err = r.pinned(accounts.SavedOnHost, bytes, usedBetween)
		case bytes > 0:
			r.savedMem[l].Dev, err = r.alloc(accounts.Saved, bytes)
		}
		if err != nil {
			return err
		}
	}
	if bytes := p.SpillBytes(); bytes > 0 {
		if r.spills, err = r.pinned(accounts.Spills, bytes, usedBetween); err != nil {
			return err
		}
	}
	return nil
}

// statesOnHost is the lane's hook for hidden states in host memory, in runs with very long rows. Launches copy the
// states to the device in chunks, and the hook counts the bytes of these copies.
type statesOnHost struct{ r *lane }

func (x statesOnHost) state(s *slot, tokens int) layers.Hidden {
	return layers.Hidden{Host: s.host[:x.r.plan.ActivationBytes(tokens)]}
}

func (statesOnHost) begin(*Pass) {}

func (x statesOnHost) before(e enqueue, l schedule.Launch, v schedule.Visit) {
	if l.MicroBatch < 0 { // experts copy none
		return
	}
	up, down := x.r.plan.Spec.Crosses(v, x.r.plan.Layouts[v.Layer].Block, e.p.Batch.MicroBatches[l.MicroBatch].Tokens)
	x.r.h2d.bytes.Add(up)
	x.r.d2h.bytes.Add(down)
}

func (statesOnHost) after(schedule.Visit) {}

// pinned allocates host memory for activations and queues it for registerAll, which pins it so that
// copies are fast. p is the purpose under which the memory is counted. use says when in a step
// copies first use it.
func (r *lane) pinned(p accounts.Purpose, bytes int64, use firstUse) ([]byte, error) {
	b, err := r.newArena(p, bytes)
	if err == nil {
		r.register(b, use)
	}
	return b, err
}

// firstUse says when in a step the copies first use registered memory.
type firstUse int

const (
	usedAtOnce   firstUse = iota // in every visit
	usedForward                  // tiles, in the order of their layers
	usedBetween                  // in some visit of the forward pass
	usedBackward                 // gradients
)

// register queues host memory for registerAll. Registered memory is pinned: it is copied fast, and a device that
// computes in place can address it. use says when in a step copies first use it.
func (r *run) register(b []byte, use firstUse) {
	if len(b) > 0 {
		r.registering[use] = append(r.registering[use], b)
	}
}

// registerAll pins the queued host memory of all lanes for each device, in the order of first use. One call per device
// lets the device pin pieces in parallel. All devices get the same list, so all cut it into the same pieces.
func (r *run) registerAll() error {
	r.register(r.passage, usedBetween)
	r.registered = slices.Concat(r.registering[:]...)
	if len(r.registered) == 0 {
		return nil
	}
	for _, l := range r.lanes {
		if err := l.dev.Register(r.registered...); err != nil {
			return fmt.Errorf("prepare the pipeline: %w", err)
		}
		r.onClose(func() { l.dev.Unregister(r.registered...) })
	}
	return nil
}

// makeTemplates copies the RoPE tables to the device and makes the templates. It copies through the still unused
// staging buffer of a batch, which needs no extra memory.
func (r *lane) makeTemplates() error {
	spec := r.plan.Spec
	spec.Scratch = r.scratch
	if r.o.predicted != nil { // a prediction never reads the tables
		r.ops = layers.New(spec, r.dev)
		return nil
	}
	cos, sin := spec.Config.RopeTables(spec.Positions)
	for _, t := range []struct {
		values []float32
		to     *device.Tensor
	}{{cos, &spec.Cos}, {sin, &spec.Sin}} {
		m, err := r.alloc(accounts.Tables, 4*int64(len(t.values)))
		if err != nil {
			return err
		}
		*t.to = m.Tensor(device.F32, 0, int64(len(t.values)))
		staging := r.batches[0].staging
		for off := 0; off < len(t.values); {
			piece := t.values[off:min(len(t.values), off+len(staging)/4)]
			bytes := 4 * int64(len(piece))
			putFloats(staging, piece)
			r.h2d.Stream.CopyH2D(t.to.Mem().Slice(4*int64(off), bytes), staging[:bytes])
			if err := r.h2d.Sync(); err != nil {
				return err
			}
			off += len(piece)
		}
	}
	r.ops = layers.New(spec, r.dev)
	return nil
}

// bindSaved cuts each layer's memory for intermediate results of the forward (savedMem) into one piece for each
// micro-batch of a round of b. Each round uses this memory again.
func (r *lane) bindSaved(b *data.Batch) {
	spec, inRound := r.plan.Spec, r.schedule.InRound(len(b.MicroBatches))
	r.saved = r.saved[:0]
	for l, m := range r.savedMem {
		if m.Bytes() == 0 {
			r.saved = append(r.saved, nil)
			continue
		}
		var off int64
		cut := make([]layers.Kept, len(b.MicroBatches))
		for i, mb := range b.MicroBatches {
			if inRound[i] == 0 {
				off = 0
			}
			if !r.plan.Keeps(l, inRound[i]) {
				continue
			}
			n := r.kinds[l].SavedBytes(spec, r.plan.Layouts[l].Block, spec.Keep.Of(r.plan.Layouts[l].Block), mb.Tokens)
			cut[i] = m.Slice(off, n)
			off += (n + device.Align - 1) / device.Align * device.Align
		}
		r.saved = append(r.saved, cut)
	}
}

// copying tells the lane's timeline, which records traces, that the next operations on s are the
// copies of task e. It returns s.
func (r *lane) copying(s *countedStream, e task) *countedStream {
	r.watch.copying(s, e)
	return s
}

// event makes an event. The run closes the event when it ends.
func (r *lane) event() (device.Event, error) {
	e, err := r.dev.NewEvent()
	if err == nil {
		r.onClose(e.Close)
	}
	return e, err
}

// makeStalls makes the record of how long the compute stream waits (stalls.go).
func (r *lane) makeStalls() error {
	r.stalls = newStalls(r.dev)
	r.onClose(r.stalls.close)
	return nil
}

// drain waits until the lane's device has completed all enqueued work. It returns the errors of the streams.
func (r *lane) drain() (err error) {
	for _, s := range r.streams() {
		err = errors.Join(err, s.Sync())
	}
	return err
}

// slot is device memory for a tile of weights, a gradient or an activation. The stream that fills the slot records
// ready. The stream that reads it records idle after the last read.
type slot struct {
	mem         device.Mem // empty if the content is on the host
	host        []byte     // of an activation slot, if hidden states are on the host
	ready, idle device.Event
	place       placement // of a weight slot
	index       int       // of a weight slot
}

// onDevice views the hidden state of this many tokens in activation slot s, which is in device memory.
func (r *lane) onDevice(s *slot, tokens int) layers.Hidden {
	return layers.OnDevice(s.mem.Tensor(r.plan.Spec.Act, 0, int64(tokens)*int64(r.plan.Spec.HiddenWidth())))
}

// makeSlots allocates n slots of this many bytes each. With 0 bytes the slots have only events, because their content
// is on the host.
func (r *lane) makeSlots(p accounts.Purpose, n int, bytes int64) ([]slot, error) {
	out := make([]slot, n)
	for i := range out {
		var err error
		if bytes > 0 {
			if out[i].mem, err = r.alloc(p, bytes); err != nil {
				return nil, err
			}
		}
		if out[i].ready, err = r.event(); err != nil {
			return nil, err
		}
		if out[i].idle, err = r.event(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
