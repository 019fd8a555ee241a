package actors

import (
	"cmp"
	"fmt"

	"mt/layers"
	"mt/plan"
	"mt/schedule"
)

// The Prefetcher owns the credits of what it fills: weight slots of every class,
// batch slots and activation slots. It serves the takes of a program in the order in
// which they were planned. Each waits for a free slot and for what is to be copied: a
// layer at the right version, or an activation that has been spilled. Only for what
// another lane passes on a slot is allotted before it has come.

// prefetcherCore is the pure part of the Prefetcher.
type prefetcherCore struct {
	lane      laneID
	rows      bool                       // its batches have the embedding's rows
	versions  []versionState             // by layer
	sources   [][]int                    // by tile, the layers that it is copied from
	onDisk    []bool                     // by layer: its tile is on a disk; nil: none is
	toRead    []granted                  // tiles whose slots are idle, in the order of reading; the first is being read
	classes   []schedule.Class           // of every weight slot
	slots     [schedule.NumClasses][]int // by class: the weight slots that are free
	batchFree []int                      // batch slots that are free
	actFree   []int                      // activation slots that are free
	programs  []*prefetchState
	// passed are the activations that other lanes have passed on to the host and that have no slot
	// yet; allotted, by what they wait for, the slots of those that have not come.
	passed    map[transit]bool
	allotted  map[transit]takeIn
	reachedBy []bool // by lane: whether its device can copy into the slots of this one
}

// versionState is what the last LayerUpdated said of a layer.
type versionState struct {
	version int
	waited  Cause // what the update waited for: the Checkpointer, a disk, neither
}

// prefetchState is how far the Prefetcher is with one program.
type prefetchState struct {
	p        *Pass
	batch    bool        // the gathering of the batch's rows has begun
	weights  int         // next entry of WeightTakes
	acts     int         // next entry of ActTakes
	spilled  map[int]int // by object: how often it has been spilled
	routed   routing     // of the layers whose routing has landed
	waited   Cause       // what the next tile to fetch has waited for
	waitedIn Cause       // what the batch has waited for
}

// newPrefetcherCore makes a Prefetcher of so many layers, all at the same version. rows says
// whether the embedding is on its lane. sources
// has, by tile, the layers that it is copied from; slots and batches are how many weight
// slots there are of each class, and how many batch slots.
func newPrefetcherCore(lane laneID, rows bool, layers, version int, sources [][]int, slots [schedule.NumClasses]int, batches int, d plan.Depths) *prefetcherCore {
	c := &prefetcherCore{lane: lane, rows: rows, versions: make([]versionState, layers), sources: sources, batchFree: ids(batches), actFree: ids(d.ActivationSlots),
		passed: map[transit]bool{}, allotted: map[transit]takeIn{}}
	for class, n := range slots {
		for range n {
			c.slots[class] = append(c.slots[class], len(c.classes))
			c.classes = append(c.classes, schedule.Class(class))
		}
	}
	for i := range c.versions {
		c.versions[i].version = version
	}
	return c
}

// ids lists the ids 0 … n−1.
func ids(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// fetchWeights enqueues the copy of a tile into a slot on the h2d stream, after the
// slot is idle, and records that it is ready.
type fetchWeights struct {
	Prog, Layer, Part, Tile, Slot int
	Expert                        bool // it is an expert's tile, and is counted as such
	Step                          int  // of the pass
}

// gatherRows collects the embedding's rows of a batch in the staging of a slot.
type gatherRows struct {
	p    *Pass
	Slot int
}

// rowsGathered tells that gatherRows is done.
type rowsGathered struct {
	p    *Pass
	sent BatchFetched
}

// fetchBatch enqueues the copies of the gathered rows and of the batch's ids to the
// device.
type fetchBatch struct {
	p    *Pass
	Slot int
}

// fetchActivation enqueues the copy of a spilled activation of so many tokens into a
// slot; Host is where it lies on the host, as in schedule.Object, and Step that of the pass.
type fetchActivation struct{ Slot, Host, Tokens, Step int }

func (c *prefetcherCore) step(msg any) []effect {
	switch m := msg.(type) {
	case PassPlanned:
		c.programs = append(c.programs, &prefetchState{p: m.Pass, spilled: map[int]int{}, routed: routing{}})
	case LayerUpdated:
		c.versions[m.Layer] = versionState{version: m.Version, waited: m.Waited}
	case SlotFreed:
		class := c.classes[m.Slot]
		c.slots[class] = append(c.slots[class], m.Slot)
	case BatchSlotFreed:
		c.batchFree = append(c.batchFree, m.Slot)
	case rowsGathered:
		return []effect{work{do: fetchBatch{p: m.p, Slot: m.sent.Slot}}, send{c.lane.compute(), m.sent}}
	case slotIdle:
		return c.slotIdle(m.granted)
	case paramsRead:
		return c.paramsRead(m.granted)
	case ActivationSlotFreed:
		c.actFree = append(c.actFree, m.Slot)
	case ActivationSpilled:
		for _, s := range c.programs {
			if s.p.Seq == m.Prog {
				s.spilled[m.Object]++
			}
		}
	case ActivationPassed:
		out := c.arrived(m)
		return append(out, c.advance()...)
	case RoutingLanded:
		for _, s := range c.programs {
			if s.p.Seq == m.Prog {
				s.routed[m.Layer] = m
			}
		}
	default:
		panic(unexpected(c.lane.prefetcher(), msg))
	}
	return c.advance()
}

// advance serves whatever can be served. It begins with a program when all takes of the
// program before have been served.
func (c *prefetcherCore) advance() []effect {
	var out []effect
	for len(c.programs) > 0 {
		s := c.programs[0]
		out = append(out, c.serveBatch(s)...)
		out = append(out, c.serveWeights(s)...)
		out = append(out, c.serveActivations(s)...)
		if !s.batch || s.weights < len(s.p.WeightTakes) || s.acts < len(s.p.ActTakes) {
			break
		}
		c.programs = c.programs[1:]
	}
	return out
}

// upToDate says whether layers are at the version that p needs, and what they wait for or
// have waited for.
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

func (c *prefetcherCore) serveBatch(s *prefetchState) []effect {
	if s.batch {
		return nil
	}
	ok, cause := true, NoStall
	if c.rows {
		ok, cause = c.upToDate(s.p, 0)
	}
	switch {
	case !ok:
		s.waitedIn = cause
		return nil
	case cause == StallCheckpoint || cause == StallDisk:
		s.waitedIn = cause
	case s.waitedIn == NoStall:
		s.waitedIn = cmp.Or(s.p.Waited, StallData)
	}
	if len(c.batchFree) == 0 {
		return nil
	}
	s.batch = true
	slot := c.batchFree[0]
	c.batchFree = c.batchFree[1:]
	return []effect{work{do: gatherRows{p: s.p, Slot: slot},
		done: []send{{c.lane.prefetcher(), rowsGathered{p: s.p, sent: BatchFetched{Prog: s.p.Seq, Slot: slot, Cause: s.waitedIn}}}}}}
}

func (c *prefetcherCore) serveWeights(s *prefetchState) []effect {
	var out []effect
	for s.weights < len(s.p.WeightTakes) {
		v := s.p.WeightTakes[s.weights]
		visit := s.p.Visits[v]
		expert := visit.Stage == schedule.Expert
		if s.p.OnDemand && expert {
			known, pairs := s.routed.pairs(visit)
			if !known {
				s.waited = StallRouting
				return out
			}
			if pairs == 0 { // nobody is sent there: Compute needs no weights
				s.weights++
				continue
			}
		}
		ok, cause := c.upToDate(s.p, c.sources[visit.Tile]...)
		if !ok {
			s.waited = cause
			return out
		}
		free := &c.slots[visit.Class]
		if len(*free) == 0 {
			s.waited = StallWeights
			return out
		}
		if s.waited == NoStall || cause == StallCheckpoint || cause == StallDisk {
			s.waited = cause
		}
		slot := (*free)[0]
		*free = (*free)[1:]
		fetch := fetchWeights{Prog: s.p.Seq, Layer: visit.Layer, Part: visit.Part, Tile: visit.Tile, Slot: slot, Expert: expert, Step: s.p.Step}
		out = append(out, c.fetch(granted{fetch, LayerFetched{Prog: s.p.Seq, Visit: v, Slot: slot, Cause: s.waited}})...)
		s.waited = NoStall
		s.weights++
	}
	return out
}

func (c *prefetcherCore) serveActivations(s *prefetchState) []effect {
	var out []effect
	for s.acts < len(s.p.ActTakes) && len(c.actFree) > 0 {
		t := s.p.ActTakes[s.acts]
		if t.Fetch && s.spilled[t.Object] < t.Spills {
			break
		}
		slot := c.actFree[0]
		c.actFree = c.actFree[1:]
		out = append(out, c.fill(s.p, t, slot)...)
		s.acts++
	}
	return out
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

func (e fetchWeights) start(r *lane, _ work) error {
	defer r.copying(r.h2d, e).end()
	s := r.weights[e.Slot]
	moved := s.place.fetch(r.tiles[e.Tile], s)
	if e.Expert && moved > 0 {
		r.travelled.add(e.Prog, moved)
	}
	r.h2d.Record(s.ready)
	return r.enqueued("prefetch %s", r.names[e.Layer])
}

func (e fetchActivation) start(r *lane, _ work) error {
	defer r.copying(r.in, e).end()
	r.bringIn(e.Slot, r.spilled(e.Host, e.Tokens))
	return r.enqueued("prefetch an activation into slot %d", e.Slot)
}

// bringIn enqueues the copy of an activation from the host into a slot.
func (r *lane) bringIn(to int, from []byte) {
	slot := r.acts[to]
	r.in.Wait(slot.idle)
	layers.CopyUp(r.in, slot.mem.Slice(0, int64(len(from))), from)
	r.in.Record(slot.ready)
}

// upErr is the error so far of the streams that copy to the device.
func (r *lane) upErr() error {
	err := r.h2d.Err()
	if err == nil && r.in != nil {
		err = r.in.Err()
	}
	return err
}

// enqueued is the error of those streams, behind words that say what was enqueued.
func (r *lane) enqueued(what string, args ...any) error {
	if err := r.upErr(); err != nil {
		return fmt.Errorf(what+": %w", append(args, err)...)
	}
	return nil
}
