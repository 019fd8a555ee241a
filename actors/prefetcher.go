package actors

import (
	"cmp"

	"mt/model"
	"mt/plan"
)

// The Prefetcher owns the credits of what it fills: weight slots, the slot of a
// whole head, batch slots and activation slots. It serves the takes of a program in
// the order they were planned; each waits for its credit and for its source
// (the layer's version, the spilled copy).

// prefetcherCore is the pure part of the Prefetcher.
type prefetcherCore struct {
	versions  []versionState // by layer
	tied      bool           // the head's weights include the embedding's table
	slots     []int          // free weight slots
	headFree  bool
	batchFree []int
	actFree   []int
	programs  []*prefetchState
}

type versionState struct {
	version int
	held    bool // its last update waited for the Checkpointer
}

// prefetchState is how far the Prefetcher is with one program.
type prefetchState struct {
	p        *Program
	batch    bool        // the batch has been asked for
	weights  int         // next entry of WeightTakes
	acts     int         // next entry of ActTakes
	spilled  map[int]int // how often an object has been spilled
	routed   routing     // of the layers so far
	waited   Cause       // what the next weight take has waited for
	waitedIn Cause       // the same for the batch
}

func newPrefetcherCore(layers, version int, tied bool, d plan.Depths) *prefetcherCore {
	c := &prefetcherCore{versions: make([]versionState, layers), tied: tied, headFree: true,
		slots: ids(d.WeightSlots), batchFree: ids(batchSlots), actFree: ids(d.ActivationSlots)}
	for i := range c.versions {
		c.versions[i].version = version
	}
	return c
}

// ids is 0 … n−1.
func ids(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// fetchWeights enqueues the copy of a layer's tile, or of what a part of the layer
// needs of it, into a slot on the h2d stream, after slotIdle, and records
// weightsReady.
type fetchWeights struct {
	Prog, Layer, Part, Slot int
	Head                    bool // into the slot of a whole head
}

// gatherRows collects the embedding's rows of a batch in host staging.
type gatherRows struct{ p *Program }

// rowsGathered tells that gatherRows is done.
type rowsGathered struct {
	p    *Program
	sent BatchFetched
}

// fetchBatch enqueues the copies of the gathered rows and of the batch's ids.
type fetchBatch struct {
	p    *Program
	Slot int
}

// fetchActivation enqueues the copy of a spilled activation into a slot.
type fetchActivation struct{ Slot, Host, Tokens int }

func (c *prefetcherCore) step(msg any) []any {
	switch m := msg.(type) {
	case PassPlanned:
		c.programs = append(c.programs, &prefetchState{p: m.Program, spilled: map[int]int{}, routed: routing{}})
	case LayerUpdated:
		c.versions[m.Layer] = versionState{version: m.Version, held: m.Held}
	case SlotFreed:
		c.slots = append(c.slots, m.Slot)
	case HeadSlotFreed:
		c.headFree = true
	case BatchSlotFreed:
		c.batchFree = append(c.batchFree, m.Slot)
	case rowsGathered:
		return []any{work{do: fetchBatch{p: m.p, Slot: m.sent.Slot}}, send{computeID, m.sent}}
	case ActivationSlotFreed:
		c.actFree = append(c.actFree, m.Slot)
	case ActivationSpilled:
		for _, s := range c.programs {
			if s.p.Seq == m.Prog {
				s.spilled[m.Object]++
			}
		}
	case RoutingLanded:
		for _, s := range c.programs {
			if s.p.Seq == m.Prog {
				s.routed[m.Layer] = m.Offsets
			}
		}
	default:
		panic(unexpected(prefetcherID, msg))
	}
	return c.advance()
}

// advance serves whatever can be served. Takes of a later program begin only
// when those of the one before have all been served.
func (c *prefetcherCore) advance() []any {
	var out []any
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

// upToDate says whether layer is at the version p wants, and if not why not.
func (c *prefetcherCore) upToDate(p *Program, layer int) (bool, Cause) {
	v := c.versions[layer]
	switch {
	case v.version != p.Version:
		return false, StallUpdate
	case v.held:
		return true, StallCheckpoint
	}
	return true, StallWeights
}

func (c *prefetcherCore) serveBatch(s *prefetchState) []any {
	if s.batch {
		return nil
	}
	ok, cause := c.upToDate(s.p, 0)
	switch {
	case !ok:
		s.waitedIn = cause
		return nil
	case cause == StallCheckpoint:
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
	return []any{work{do: gatherRows{s.p},
		done: rowsGathered{p: s.p, sent: BatchFetched{Prog: s.p.Seq, Slot: slot, Cause: s.waitedIn}}}}
}

func (c *prefetcherCore) serveWeights(s *prefetchState) []any {
	var out []any
	for s.weights < len(s.p.WeightTakes) {
		v := s.p.WeightTakes[s.weights]
		visit := s.p.Visits[v]
		head := !visit.streams() // the embedding takes nothing here
		if s.p.OnDemand && visit.Stage == Expert {
			known, pairs := s.routed.pairs(visit)
			if !known {
				s.waited = StallRouting
				return out
			}
			if pairs == 0 { // nobody comes: Compute passes the visit without weights
				s.weights++
				continue
			}
		}
		ok, cause := c.upToDate(s.p, visit.Layer)
		if ok && visit.Kind == model.Head && c.tied {
			ok, cause = c.upToDate(s.p, 0)
		}
		if !ok {
			s.waited = cause
			return out
		}
		if head && !c.headFree || !head && len(c.slots) == 0 {
			s.waited = StallWeights
			return out
		}
		if s.waited == NoStall || cause == StallCheckpoint {
			s.waited = cause
		}
		slot := 0
		if head {
			c.headFree = false
		} else {
			slot, c.slots = c.slots[0], c.slots[1:]
		}
		out = append(out, work{do: fetchWeights{Prog: s.p.Seq, Layer: visit.Layer, Part: visit.Part, Slot: slot, Head: head}},
			send{computeID, LayerFetched{Prog: s.p.Seq, Visit: v, Slot: slot, Cause: s.waited}})
		s.waited = NoStall
		s.weights++
	}
	return out
}

func (c *prefetcherCore) serveActivations(s *prefetchState) []any {
	var out []any
	for s.acts < len(s.p.ActTakes) && len(c.actFree) > 0 {
		t := s.p.ActTakes[s.acts]
		if t.Fetch && s.spilled[t.Object] < t.Spills {
			break
		}
		slot := c.actFree[0]
		c.actFree = c.actFree[1:]
		o := s.p.Objects[t.Object]
		if t.Fetch {
			out = append(out, work{do: fetchActivation{Slot: slot, Host: o.Host, Tokens: o.Tokens}})
		}
		out = append(out, send{computeID, ActivationFetched{Prog: s.p.Seq, Object: t.Object, Slot: slot, Filled: t.Fetch}})
		s.acts++
	}
	return out
}
