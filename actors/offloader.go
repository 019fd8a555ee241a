package actors

import (
	"encoding/binary"
	"fmt"
	"math"

	"mt/data"
	"mt/layers"
	"mt/layers/schedule"
)

// The Offloader copies the device's results to the host: gradients into slabs, spilled activations, the experts'
// routing, and losses. It owns the credits of slabs. "Landed" means that the bytes are on the host, not that the copy
// is enqueued.

// offloaderCore is the pure part of the Offloader.
type offloaderCore struct {
	offloaderSpec
	programs    map[int]*Pass // by Seq, while messages of the program may arrive
	slabs       slabKeeper
	waiting     []GradComputed
	offers      map[transit]int            // activation slots that other lanes offer
	leaving     map[transit]ActivationLeft // activations in host memory that wait for an offer
	partsLanded int                        // landed parts of the gradient of a head whose parts are on several lanes
}

// offloaderSpec has the settings of a run that an Offloader's core needs.
type offloaderSpec struct {
	lane       laneID
	own        int    // slabs that belong to layers; the shared slabs follow; 0: all slabs are shared
	turns      int    // shared slabs of each lane
	gradOnDisk []bool // by layer: its gradient waits on a disk, so it uses a shared slab; nil: none
	onHost     bool   // activation slots are in host memory
	parts      bool   // some layers are visited in parts and have gradients in parts
	head       []int  // the lanes of the head's parts, if they are on several lanes; its gradient has a slab of its own
	balance    balancing
	landed     func(GradLanded, *data.Batch) send // makes the message for a landed gradient
}

// slabKeeper chooses the slab for each gradient. In some runs each layer owns a slab; in others layers share slabs in
// turns.
type slabKeeper interface {
	// take returns the number of the slab for a gradient. ok is false if no slab is free.
	take(m GradComputed) (slab int, ok bool)
	// sends lists the messages to send when a gradient, or a part of one, has landed. When all
	// parts have landed, this is taker, the message that hands the gradient to the next actor.
	// Before that the list is empty.
	sends(m GradComputed, taker send) []send
	free(slab int)
}

// wholeGrads is embedded in slab keepers for gradients that land as a whole, not in parts.
type wholeGrads struct{}

func (wholeGrads) sends(_ GradComputed, taker send) []send { return []send{taker} }

// ownSlabs is the slab keeper of a run in which each layer owns a slab: layer l has slab l, which is always free.
type ownSlabs struct{ wholeGrads }

func (ownSlabs) take(m GradComputed) (int, bool) { return m.Layer, true }

func (ownSlabs) free(int) {}

// turnSlabs is the slab keeper for layers that take turns in shared slabs. A free slab is a credit: without one, the
// gradient waits in its gradient buffer.
type turnSlabs struct {
	wholeGrads
	slabs []int // the free slabs
}

func (k *turnSlabs) take(GradComputed) (slab int, ok bool) {
	if len(k.slabs) == 0 {
		return 0, false
	}
	slab, k.slabs = k.slabs[0], k.slabs[1:]
	return slab, true
}

func (k *turnSlabs) free(slab int) { k.slabs = append(k.slabs, slab) }

// mixedSlabs gives most layers a slab of their own. Layers whose gradients wait on disks share slabs in turns.
type mixedSlabs struct {
	turnSlabs
	own        int
	gradOnDisk []bool
}

func (k *mixedSlabs) take(m GradComputed) (int, bool) {
	if k.gradOnDisk[m.Layer] {
		return k.turnSlabs.take(m)
	}
	return m.Layer, true
}

func (k *mixedSlabs) free(slab int) {
	if slab >= k.own {
		k.turnSlabs.free(slab)
	}
}

// gradsInParts is the slab keeper for layers visited in parts, such as a head whose vocabulary is
// split. All parts of a layer's gradient go into one slab. Parts of two layers never alternate, so
// remembering one slab at a time is enough.
type gradsInParts struct {
	slabKeeper
	slab int // of the current gradient; −1: none
}

func (k *gradsInParts) take(m GradComputed) (slab int, ok bool) {
	if slab = k.slab; slab < 0 {
		if slab, ok = k.slabKeeper.take(m); !ok {
			return 0, false
		}
	}
	if k.slab = slab; m.Complete {
		k.slab = -1
	}
	return slab, true
}

func (k *gradsInParts) sends(m GradComputed, taker send) []send {
	if !m.Complete {
		return nil
	}
	return k.slabKeeper.sends(m, taker)
}

// headOnLanes is the slab keeper of a run with parts of the head on several lanes. All of them land in the head's own
// slab. The Offloader of part 0 counts them (PartLanded).
type headOnLanes struct {
	slabKeeper        // for the other layers
	counts     laneID // the lane of part 0
}

func (k *headOnLanes) take(m GradComputed) (slab int, ok bool) {
	if m.Stage == schedule.HeadPart {
		return m.Layer, true
	}
	return k.slabKeeper.take(m)
}

func (k *headOnLanes) sends(m GradComputed, taker send) []send {
	if m.Stage == schedule.HeadPart {
		return []send{{k.counts.offloader(), PartLanded{taker}}}
	}
	return k.slabKeeper.sends(m, taker)
}

// newOffloaderCore makes the core of a lane, with the slab keeper that the run needs.
func newOffloaderCore(x offloaderSpec) *offloaderCore {
	c := &offloaderCore{offloaderSpec: x, programs: map[int]*Pass{}, slabs: ownSlabs{}, offers: map[transit]int{}, leaving: map[transit]ActivationLeft{}}
	var turns turnSlabs
	for i := range x.turns {
		turns.slabs = append(turns.slabs, x.own+int(x.lane)*x.turns+i)
	}
	switch {
	case x.own == 0:
		c.slabs = &turns
	case x.gradOnDisk != nil:
		c.slabs = &mixedSlabs{turns, x.own, x.gradOnDisk}
	}
	if x.parts {
		c.slabs = &gradsInParts{c.slabs, -1}
	}
	if x.head != nil {
		c.slabs = &headOnLanes{c.slabs, laneID(x.head[0])}
	}
	return c
}

// toOptimizer makes the message that sends a landed gradient to the Optimizer.
func toOptimizer(m GradLanded, _ *data.Batch) send { return send{optimizerID, m} }

// spill is the task of copying an activation from a slot to its place on the host.
type spill struct {
	Slot int
	place
}

// place is where an activation spills to. Layer is 0: the host memory for spills, which holds the batch's tokens one
// after the other; the activation begins after Host tokens (schedule.Object.Host). Otherwise the activation is what a
// layer keeps of a micro-batch, and goes to the layer's own host memory.
type place struct{ Host, Tokens, Layer, MicroBatch int }

func placeOf(o schedule.Object) place { return place{o.Host, o.Tokens, o.Layer, o.MicroBatch} }

// offloadGrad is the task of copying a tile's gradient from gradient buffer Buf into slab Slab, at
// the tile's place in the layer. After the copy it records that the gradient buffer is idle.
type offloadGrad struct {
	Layer, Part, Tile, Buf, Slab int
	IDs                          []int32 // unique ids of the batch
}

// offloadLoss is the task of copying the losses of p from a batch slot to the host and summing them. Load is Σ
// counts·probabilities over the experts, from which the load-balancing loss follows.
type offloadLoss struct {
	p    *Pass
	Slot int
	Load float64
}

// losses is the result of offloadLoss: the sum of the losses, the same of multi-token prediction, the load-balancing loss
// and, with preference pairs, their sums. The message LossLanded carries them.
type losses struct {
	sum, ahead, aux float64
	pairs           *PairSums
}

func (c *offloaderCore) step(msg message) []effect {
	switch m := msg.(type) {
	case PassPlanned:
		c.programs[m.Pass.Seq] = m.Pass
		delete(c.programs, m.Pass.Seq-programsKept)
		c.forgetOffers(m.Pass.Seq - programsKept)
	case ActivationComputed:
		o := c.programs[m.Prog].Objects[m.Object]
		return []effect{work{do: spill{Slot: m.Slot, place: placeOf(o)}, done: []send{
			{c.lane.prefetcher(), ActivationSpilled{Prog: m.Prog, Object: m.Object}},
			{c.lane.prefetcher(), ActivationSlotFreed{m.Slot}}}}}
	case SlotOffered:
		return c.offered(m)
	case ActivationLeft:
		return c.passOn(m)
	case LossComputed:
		p := c.programs[m.Prog]
		return []effect{work{do: offloadLoss{p: p, Slot: m.Slot, Load: m.Load}, done: []send{{conductorID, LossLanded{Prog: p.Seq, Step: p.Step, Eval: p.Eval}}}}}
	case RoutingComputed:
		p, landed := c.programs[m.Prog], RoutingLanded{Prog: m.Prog, Layer: m.Layer}
		sends := []send{{c.lane.prefetcher(), landed}, {c.lane.compute(), landed}}
		if c.balance.distributed && !p.Eval {
			sends = append(sends, send{conductorID, landed})
		}
		for lane := range laneID(c.balance.lanes) {
			if lane != c.lane && !p.Eval && !c.balance.distributed {
				sends = append(sends, send{lane.compute(), landed})
			}
		}
		return []effect{work{do: offloadRouting{p: p, Layer: m.Layer}, done: sends}}
	case GradComputed:
		c.waiting = append(c.waiting, m)
	case PartLanded:
		if c.partsLanded++; c.partsLanded == len(c.head) {
			c.partsLanded = 0
			return []effect{m.Whole}
		}
		return nil
	case SlabFreed:
		c.slabs.free(m.Slab)
	default:
		panic(unexpected(c.lane.offloader(), msg))
	}
	return c.advance()
}

// programsKept is the number of programs that the core remembers. A message that refers to a program comes at most this
// many programs later.
const programsKept = 4

func (c *offloaderCore) advance() (out []effect) {
	for len(c.waiting) > 0 {
		m := c.waiting[0]
		slab, ok := c.slabs.take(m)
		if !ok {
			break
		}
		c.waiting = c.waiting[1:]
		batch := c.programs[m.Prog].Batch
		taker := c.landed(GradLanded{Step: m.Step, Layer: m.Layer, Slab: slab, Lane: c.lane, IDs: batch.UniqueIDs}, batch)
		sends := []send{{c.lane.compute(), GradSummed{m.Tile}}}
		if !m.Partial {
			sends = c.slabs.sends(m, taker)
		}
		w := work{do: offloadGrad{Layer: m.Layer, Part: m.Part, Tile: m.Tile, Buf: m.Buf, Slab: slab, IDs: batch.UniqueIDs}, done: sends}
		out = append(out, w, send{c.lane.compute(), GradBufferFreed{m.Buf}})
	}
	return out
}

// The method start of the Offloader's tasks always returns nil: errors of the streams that copy
// come with the streams' notifications.

func (e spill) start(r *lane, w work) error {
	s := r.copying(r.out, e)
	r.toHost(e.Slot, r.spilled(e.place))
	s.Notify(r.landed(w, fmt.Sprintf("spill an activation from slot %d", e.Slot), nothing))
	return nil
}

func (e offloadGrad) start(r *lane, w work) error {
	s := r.copying(r.d2h, e)
	s.Wait(r.gradBufs[e.Buf].ready)
	r.gradPlaces[e.Layer].offload(r.tiles[e.Tile], e.Buf, e.Slab, len(e.IDs))
	s.Record(r.gradBufs[e.Buf].idle)
	s.Notify(r.landed(w, "offload the gradient of "+r.names[e.Layer], nothing))
	return nil
}

func (e offloadLoss) start(r *lane, w work) error {
	s, b, n := r.copying(r.d2h, e), r.batches[e.Slot], 4*int64(r.plan.Spec.Config.Streams())*e.p.Batch.Tokens
	s.Wait(b.computed)
	s.CopyD2H(r.lossHost[:n], b.losses.Mem().Slice(0, n))
	s.Notify(r.landed(w, fmt.Sprintf("offload the losses of step %d", e.p.Step), func() any {
		sum, ahead := r.sumLosses(e.p.Batch, r.lossHost[:n])
		return losses{sum: sum, ahead: ahead, aux: r.auxLoss(e.p, e.Load), pairs: r.landedPairs(e.p, r.lossHost[:n])}
	}))
	return nil
}

// nothing is the argument found of lane.landed for copies whose messages carry no result.
func nothing() any { return nil }

// landed returns the function that a stream calls after the copies of work w. If no stream has
// failed, this function completes w with the result of found. Otherwise it reports the error with
// the copy's name, what, because data from a failed stream must not reach the Optimizer. It does
// not look at the compute stream, whose own notifications report its errors.
func (r *lane) landed(w work, what string, found func() any) func(error) {
	return func(err error) {
		r.hub.notified(func() {
			if err == nil {
				err = r.upErr()
			}
			switch {
			case err != nil:
				r.hub.fail(r.index.offloader(), fmt.Errorf("%s: %w", what, err))
			case r.compute.Err() == nil:
				r.hub.done(w, found())
			}
		})
	}
}

// toHost enqueues the copy of an activation from slot number `from` to host memory.
func (r *lane) toHost(from int, host []byte) {
	s, slot := r.out, r.acts[from]
	s.Wait(slot.ready)
	layers.CopyDown(s, host, slot.mem.Slice(0, int64(len(host))))
	s.Wait(slot.idle) // the last reader may still be running
	s.Record(slot.idle)
}

// spilled views the host memory of a spilled activation.
func (r *lane) spilled(at place) []byte {
	if at.Layer > 0 {
		return r.saved[at.Layer][at.MicroBatch].Host
	}
	from := r.plan.ActivationBytes(at.Host)
	return r.spills[from : from+r.plan.ActivationBytes(at.Tokens)]
}

// sumF32 sums the little-endian float32 values of b in order, in float64.
func sumF32(b []byte) float64 {
	var sum float64
	for i := 0; i+4 <= len(b); i += 4 {
		sum += float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	return sum
}
