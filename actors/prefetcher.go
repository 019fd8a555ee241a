package actors

import (
	"cmp"
	"fmt"
	"slices"

	"mt/base/accounts"
	"mt/device"
	"mt/layers"
	"mt/layers/schedule"
	"mt/plan"
)

// The Prefetcher owns the credits of the slots it fills: weight slots of every class, batch slots and activation slots.
// A program contains lists of takes. A take says which tile or activation gets the next slot. The Prefetcher serves
// takes in the order of the lists. Each take waits for a free slot and for its content: a layer at the right version,
// or an activation that has been spilled.

// prefetcherCore is the pure part of the Prefetcher.
type prefetcherCore struct {
	prefetcherSpec
	versions []versionState // by layer
	programs []*prefetchState
	servers  []server
}

// prefetcherSpec has the settings of a run that a Prefetcher's core needs.
type prefetcherSpec struct {
	lane          laneID
	layers        int
	rows          bool                     // its batches have embedding rows
	sources       [][]int                  // by tile: the layers it is copied from
	slots         [schedule.NumClasses]int // number of weight slots by class
	batches       int                      // number of batch slots
	activations   int                      // number of activation slots
	kept          int                      // number of slots for what layers keep; they follow the activation slots
	experts       bool                     // some layers have experts
	weightsOnDisk []bool                   // by layer: its tile is on a disk; nil: none is
	reachedBy     []bool                   // by lane: its device can copy into this lane's slots
}

// server fills one kind of slot (weight, batch or activation slots) for the takes of a program (a
// take: the acquisition of one slot). Servers are called in order.
type server interface {
	// take handles msg, such as the return of a slot. ok is false if the message is not for this
	// server.
	take(msg message) (out []effect, ok bool)
	// serve gives free slots to the program's next takes, and fills them, as far as slots and contents allow.
	serve(s *prefetchState) []effect
	// served reports whether all takes of the program have their slots.
	served(s *prefetchState) bool
}

// versionState has what the last LayerUpdated said about a layer: the version of its weights, and
// why the update was late.
type versionState struct {
	version int
	waited  Cause // what the update waited for: the Checkpointer, a disk, or nothing
}

// prefetchState is the progress of one program.
type prefetchState struct {
	p         *Pass
	batch     bool        // gathering the batch's rows has begun
	weights   int         // index of the next entry of WeightTakes
	acts      int         // index of the next entry of ActTakes
	spilled   map[int]int // by object: number of spills
	routed    routing     // the layers whose routing has landed
	tileWait  Cause       // what the next tile waited for
	batchWait Cause       // what the batch waited for
}

// newPrefetcherCore makes a Prefetcher. All layers start at the same version.
func newPrefetcherCore(x prefetcherSpec, version int) *prefetcherCore {
	c := &prefetcherCore{prefetcherSpec: x, versions: slices.Repeat([]versionState{{version: version}}, x.layers)}
	tiles := newTileServer(c)
	c.servers = []server{&batchServer{c, ids(x.batches)}, tiles, newActivationServer(c), gradServer{x.lane}}
	if x.experts {
		tiles.hooks = append(tiles.hooks, expertHook{c})
	}
	if x.weightsOnDisk != nil {
		tiles.hooks = append(tiles.hooks, &diskHook{c: c})
	}
	return c
}

// ids returns 0, …, n−1.
func ids(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (c *prefetcherCore) step(msg message) (out []effect) {
	switch m := msg.(type) {
	case PassPlanned:
		c.programs = append(c.programs, &prefetchState{p: m.Pass, spilled: map[int]int{}, routed: routing{}})
	case LayerUpdated:
		c.versions[m.Layer] = versionState{version: m.Version, waited: m.Waited}
	default:
		out = c.take(msg)
	}
	return append(out, c.advance()...)
}

// take passes a message that the core itself does not handle to the server in charge. It panics if
// there is none.
func (c *prefetcherCore) take(msg message) []effect {
	for _, s := range c.servers {
		if out, ok := s.take(msg); ok {
			return out
		}
	}
	panic(unexpected(c.lane.prefetcher(), msg))
}

// program returns the progress of the program with number seq; nil if the program is over.
func (c *prefetcherCore) program(seq int) *prefetchState {
	for _, s := range c.programs {
		if s.p.Seq == seq {
			return s
		}
	}
	return nil
}

// advance fills slots for the current program as far as free slots and their contents allow. A
// program begins when all slots of the previous one are filled.
func (c *prefetcherCore) advance() (out []effect) {
	for len(c.programs) > 0 {
		s, all := c.programs[0], true
		for _, x := range c.servers {
			out = append(out, x.serve(s)...)
			all = all && x.served(s)
		}
		if !all {
			break
		}
		c.programs = c.programs[1:]
	}
	return out
}

// upToDate reports whether layers are at the version that pass p needs. If not, cause is the reason
// why their update is not done. If they are, cause is the reason why weights came late, for the
// case that a launch waits for them.
func (c *prefetcherCore) upToDate(p *Pass, layers ...int) (ok bool, cause Cause) {
	cause = StallWeights
	for _, l := range layers {
		switch v := c.versions[l]; {
		case v.version != p.Version:
			return false, StallUpdate
		case v.waited != NoStall:
			cause = v.waited
		}
	}
	return true, cause
}

// batchServer is the server that fills batch slots.
type batchServer struct {
	c    *prefetcherCore
	free []int
}

// gatherRows is the task of writing a batch, with its embedding rows, into a slot's staging buffer.
type gatherRows struct {
	p    *Pass
	Slot int
}

// rowsGathered tells the Prefetcher that a batch is written into a slot's staging buffer.
type rowsGathered struct {
	p    *Pass
	sent BatchFetched
}

// fetchBatch is the task of enqueuing the copies of the gathered batch (embedding rows and token ids) to the device.
type fetchBatch struct {
	p    *Pass
	Slot int
}

func (x *batchServer) take(msg message) ([]effect, bool) {
	switch m := msg.(type) {
	case BatchSlotFreed:
		x.free = append(x.free, m.Slot)
		return nil, true
	case rowsGathered:
		return []effect{work{do: fetchBatch{p: m.p, Slot: m.sent.Slot}}, send{x.c.lane.compute(), m.sent}}, true
	}
	return nil, false
}

func (x *batchServer) served(s *prefetchState) bool { return s.batch }

func (x *batchServer) serve(s *prefetchState) []effect {
	if s.batch {
		return nil
	}
	ok, cause := true, NoStall
	if x.c.rows {
		ok, cause = x.c.upToDate(s.p, 0)
	}
	switch {
	case !ok:
		s.batchWait = cause
		return nil
	case cause == StallCheckpoint || cause == StallDisk:
		s.batchWait = cause
	case s.batchWait == NoStall:
		s.batchWait = cmp.Or(s.p.Waited, StallData)
	}
	if len(x.free) == 0 {
		return nil
	}
	s.batch = true
	slot := x.free[0]
	x.free = x.free[1:]
	return []effect{work{do: gatherRows{p: s.p, Slot: slot},
		done: []send{{x.c.lane.prefetcher(), rowsGathered{p: s.p, sent: BatchFetched{Prog: s.p.Seq, Slot: slot, Cause: s.batchWait}}}}}}
}

func (e gatherRows) start(r *lane, w work) error {
	r.layOut(e)
	r.hub.async(r.index.prefetcher(), w, func() (any, error) {
		r.gather(e)
		return nil, nil
	})
	return nil
}

func (e fetchBatch) start(r *lane, _ work) error {
	defer r.copying(r.h2d, e).end()
	r.upload(&r.batches[e.Slot])
	return r.enqueued("prefetch the batch of step %d", e.p.Step)
}

// tileServer is the part of the Prefetcher that grants and fills weight slots.
type tileServer struct {
	c       *prefetcherCore
	classes []schedule.Class           // by weight slot: its class
	free    [schedule.NumClasses][]int // by class: the free weight slots
	hooks   []tileHook
}

// tileHook is a piece of the Prefetcher that changes how tiles are fetched. Only runs with experts or with weights on
// disks have one. Hooks are called in order.
type tileHook interface {
	// take handles msg. ok is false if the message is not for this hook.
	take(msg message) (out []effect, ok bool)
	// ready reports whether a visit's tile can be fetched; if not, waits is the missing input.
	ready(s *prefetchState, v schedule.Visit) (waits Cause, ok bool)
	// idle reports whether the visit does no work on its tile, so that the tile need not be fetched.
	idle(s *prefetchState, v schedule.Visit) bool
	// begin is called when a tile has got a slot. ok: the hook takes over the fetch, and out are its effects. Otherwise
	// the hook may change g.
	begin(g *grantedTile) (out []effect, ok bool)
}

// grantedTile is a tile for which a free slot was taken, and the message to Compute after the tile's copy is enqueued.
type grantedTile struct {
	copy fetchWeights
	task task // copy, or a task that does more
	sent LayerFetched
	to   schedule.Stage // stage of the visit
}

// fetchWeights is the task of enqueuing, on the h2d stream, the copy of a tile into a weight slot. It then records the
// slot's ready event.
type fetchWeights struct {
	Prog, Layer, Part, Tile, Slot int
	Step                          int // training step of the pass
}

func newTileServer(c *prefetcherCore) *tileServer {
	x := &tileServer{c: c}
	for class, n := range c.slots {
		for range n {
			x.free[class] = append(x.free[class], len(x.classes))
			x.classes = append(x.classes, schedule.Class(class))
		}
	}
	return x
}

func (x *tileServer) take(msg message) ([]effect, bool) {
	if m, ok := msg.(SlotFreed); ok {
		class := x.classes[m.Slot]
		x.free[class] = append(x.free[class], m.Slot)
		return nil, true
	}
	for _, w := range x.hooks {
		if out, ok := w.take(msg); ok {
			return out, true
		}
	}
	return nil, false
}

func (x *tileServer) served(s *prefetchState) bool { return s.weights == len(s.p.WeightTakes) }

func (x *tileServer) serve(s *prefetchState) (out []effect) {
	for s.weights < len(s.p.WeightTakes) {
		v := s.p.WeightTakes[s.weights]
		visit := s.p.Visits[v]
		ready, cause := x.ready(s, visit)
		if !ready {
			s.tileWait = cause
			return out
		}
		s.weights++
		if slices.ContainsFunc(x.hooks, func(w tileHook) bool { return w.idle(s, visit) }) {
			continue
		}
		if s.tileWait == NoStall || cause == StallCheckpoint || cause == StallDisk {
			s.tileWait = cause
		}
		free := &x.free[visit.Class]
		slot := (*free)[0]
		*free = (*free)[1:]
		fetch := fetchWeights{Prog: s.p.Seq, Layer: visit.Layer, Part: visit.Part, Tile: visit.Tile, Slot: slot, Step: s.p.Step}
		out = append(out, x.fetch(grantedTile{copy: fetch, task: fetch, to: visit.Stage, sent: LayerFetched{Prog: s.p.Seq, Visit: v, Slot: slot, Cause: s.tileWait}})...)
		s.tileWait = NoStall
	}
	return out
}

// ready reports whether a visit's tile can be copied to its slot. If not, cause is the missing
// input. If it can, cause is the input that came last, if the tile had to wait.
func (x *tileServer) ready(s *prefetchState, v schedule.Visit) (ok bool, cause Cause) {
	for _, w := range x.hooks {
		if waits, ok := w.ready(s, v); !ok {
			return false, waits
		}
		if w.idle(s, v) {
			return true, NoStall
		}
	}
	if ok, cause = x.c.upToDate(s.p, x.c.sources[v.Tile]...); ok && len(x.free[v.Class]) == 0 {
		return false, StallWeights
	}
	return ok, cause
}

// fetch returns the effects that start the copy of a tile into its slot and then notify Compute.
func (x *tileServer) fetch(g grantedTile) []effect {
	for _, w := range x.hooks {
		if out, ok := w.begin(&g); ok {
			return out
		}
	}
	return g.fetch(x.c.lane)
}

func (g grantedTile) fetch(lane laneID) []effect {
	return []effect{work{do: g.task}, send{lane.compute(), g.sent}}
}

func (e fetchWeights) start(r *lane, _ work) error {
	defer r.copying(r.h2d, e).end()
	_, err := r.fetch(e)
	return err
}

// fetch enqueues the copy of a tile. It returns the number of bytes that are copied.
func (r *lane) fetch(e fetchWeights) (moved int64, err error) {
	s := r.weights[e.Slot]
	moved = s.place.fetch(r.tiles[e.Tile], s)
	r.h2d.Record(s.ready)
	return moved, r.enqueued("prefetch %s", r.names[e.Layer])
}

// placement says how the device gets at host data: through a copy in device memory (copied), or at
// its host address (inPlace).
type placement interface {
	// fetch enqueues the copy of a tile into a slot and returns the number of bytes.
	fetch(t layers.Tile, s slot) int64
	// weights views the tensors of a fetched tile.
	weights(t layers.Tile, s slot) layers.Weights
	// bind returns the memory through which the device reads a batch's staging buffer.
	bind(staging []byte) (device.Mem, error)
	// upload enqueues the copy of staged data to the memory that bind has returned.
	upload(to device.Mem, staged []byte)
}

// placement returns the way in which the lane's device gets tiles and batches: copied into its
// memory, or in place at their host addresses.
func (r *lane) placement() placement {
	return [...]placement{plan.Copied: copied{r}, plan.InPlace: inPlace{r}}[r.plan.Binding()]
}

// copied is the placement for a device with its own memory. Tiles are copied into slots, batches into allocated memory.
type copied struct{ r *lane }

func (c copied) fetch(t layers.Tile, s slot) (moved int64) {
	c.r.h2d.Wait(s.idle)
	for _, x := range t.Copies {
		c.r.h2d.CopyH2D(s.mem.Slice(x.To, x.Bytes), c.r.hostTile[x.Layer](t, s, x.Layer, x.From, x.Bytes))
		moved += x.Bytes
	}
	return moved
}

func (c copied) weights(t layers.Tile, s slot) layers.Weights {
	return layers.BindWeights(t.Layout, s.mem)
}

func (c copied) bind(staging []byte) (device.Mem, error) {
	return c.r.alloc(accounts.Batch, int64(len(staging)))
}

func (c copied) upload(to device.Mem, staged []byte) { c.r.h2d.CopyH2D(to, staged) }

// inPlace is the placement for a unified device. It computes on tiles and batches at their host address and copies
// nothing.
type inPlace struct{ r *lane }

func (inPlace) fetch(layers.Tile, slot) int64 { return 0 }

func (p inPlace) weights(t layers.Tile, s slot) layers.Weights {
	return layers.BindInPlace(t.Layout, p.r.dev, func(off, bytes int64) []byte {
		layer, at := t.Host(off)
		return p.r.hostTile[layer](t, s, layer, at, bytes)
	})
}

func (p inPlace) bind(staging []byte) (device.Mem, error) { return p.r.dev.BindHost(staging), nil }

func (inPlace) upload(device.Mem, []byte) {}

// inMemory is the tileView of layers whose weights lie in host memory: it returns the bytes [from,
// from+bytes) of the layer's tile there.
func (r *lane) inMemory(_ layers.Tile, _ slot, layer int, from, bytes int64) []byte {
	return r.o.Home.Tile(layer)[from : from+bytes]
}

// sourceLayers lists the layers from whose host tiles this lane copies. A lane may copy from another lane's layer if
// two layers share a table.
func (r *lane) sourceLayers() (out []int) {
	for _, t := range r.tiles {
		if r.schedule.At(t.Layer, t.Part) == int(r.index) {
			out = append(out, t.Sources()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allocWeights allocates the weight slots of all classes (a class: slots of one size, such as the
// slots for heads). It also chooses the memory from which each layer's tile is copied.
func (r *lane) allocWeights() error {
	for l := range r.schedule.Layers {
		held := r.inMemory
		if r.plan.ParamBytes(l) > 0 {
			held = r.inParamBuffer
		}
		r.hostTile = append(r.hostTile, held)
	}
	for _, l := range r.sourceLayers() {
		r.register(r.o.Home.Tile(l), usedForward)
	}
	for class := range schedule.NumClasses {
		count, bytes := r.plan.Slots(class)
		slots, err := r.makeSlots(accounts.WeightSlots, count, bytes)
		if err != nil {
			return err
		}
		for _, s := range slots {
			s.place, s.index = r.placement(), len(r.weights)
			r.weights = append(r.weights, s)
		}
	}
	return nil
}

// activationServer fills activation slots. An activation gets a slot when its content can be copied or computed. Only
// an activation from another lane gets its slot earlier, so that the other lane can copy into the slot.
type activationServer struct {
	c    *prefetcherCore
	free [2][]int // free slots: for hidden states and gradients, for what layers keep
	// passed has the activations that other lanes have passed to the host and that have no slot yet. allotted has the
	// activations that have a slot and have not arrived.
	passed   map[transit]bool
	allotted map[transit]fetchPassed
}

func newActivationServer(c *prefetcherCore) *activationServer {
	all := ids(c.activations + c.kept)
	return &activationServer{c: c, free: [2][]int{all[:c.activations:c.activations], all[c.activations:]}, passed: map[transit]bool{}, allotted: map[transit]fetchPassed{}}
}

// fetchActivation is the task of enqueuing the copy of a spilled activation into a slot. Step is the training step of
// the pass.
type fetchActivation struct {
	Slot, Step int
	place
}

func (x *activationServer) take(msg message) ([]effect, bool) {
	switch m := msg.(type) {
	case ActivationSlotFreed:
		class := 0
		if m.Slot >= x.c.activations {
			class = 1
		}
		x.free[class] = append(x.free[class], m.Slot)
	case ActivationSpilled:
		if s := x.c.program(m.Prog); s != nil {
			s.spilled[m.Object]++
		}
	case ActivationPassed:
		return x.arrived(m), true
	default:
		return nil, false
	}
	return nil, true
}

func (x *activationServer) served(s *prefetchState) bool { return s.acts == len(s.p.ActTakes) }

func (x *activationServer) serve(s *prefetchState) (out []effect) {
	for s.acts < len(s.p.ActTakes) {
		t := s.p.ActTakes[s.acts]
		free := &x.free[0]
		if s.p.Objects[t.Object].Layer > 0 {
			free = &x.free[1]
		}
		if len(*free) == 0 || t.Fetch && s.spilled[t.Object] < t.Spills {
			break
		}
		slot := (*free)[0]
		*free = (*free)[1:]
		out = append(out, x.fill(s.p, t, slot)...)
		s.acts++
	}
	return out
}

// fill returns the effects that fill a slot for the activation of take t, the program's entry for
// it, and grant the slot to Compute.
func (x *activationServer) fill(p *Pass, t schedule.Take, slot int) []effect {
	o := p.Objects[t.Object]
	granted := send{x.c.lane.compute(), ActivationFetched{Prog: p.Seq, Object: t.Object, Slot: slot, Filled: t.Fetch}}
	switch {
	case t.Arrives:
		return x.arrives(p, t, granted, slot)
	case t.Fetch:
		return []effect{work{do: fetchActivation{Slot: slot, place: placeOf(o), Step: p.Step}}, granted}
	}
	return []effect{granted}
}

func (e fetchActivation) start(r *lane, _ work) error {
	defer r.copying(r.in, e).end()
	r.bringIn(e.Slot, r.spilled(e.place))
	return r.enqueued("prefetch an activation into slot %d", e.Slot)
}

// bringIn enqueues the copy of an activation from host memory into activation slot number `to`.
func (r *lane) bringIn(to int, from []byte) {
	slot := r.acts[to]
	r.in.Wait(slot.idle)
	layers.CopyUp(r.in, slot.mem.Slice(0, int64(len(from))), from)
	r.in.Record(slot.ready)
}

// upErr returns the first error of the streams that copy to the device; nil if there is none.
func (r *lane) upErr() error {
	for _, s := range r.ups {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// enqueued returns the first error of the streams that copy to the device, if any. A task calls it
// after enqueueing a copy. Format what, with args, names the copy in the error.
func (r *lane) enqueued(what string, args ...any) error {
	if err := r.upErr(); err != nil {
		return fmt.Errorf(what+": %w", append(args, err)...)
	}
	return nil
}
