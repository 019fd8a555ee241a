package plan

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// with512GiB requests steps of 7B with this many rows of 1024 tokens, on an H100 in a host of 512 GiB.
func with512GiB(t *testing.T, rows int) Request {
	q := on7B(t, 28, 79.6)
	q.Rows, q.HostMemory = rows, 512<<30
	return q
}

// still returns the plan that r was before its tensors could travel.
func (r *Run) still(q Request) *Run {
	v := *r
	v.KeptSlots, v.Spec.KeptOnHost, v.Spec.KeptOf = 0, nil, schedule.Share{}
	v.chooseSaved(q, v.saveOptions())
	return &v
}

// TestTravelPays: what blocks keep travels where that makes a step at least 2 % shorter, and nowhere else. It does not
// travel where the host has no room apart from the device's, or where the forward keeps nothing.
func TestTravelPays(t *testing.T) {
	for name, c := range map[string]struct {
		rows    int
		travels bool
		change  func(*Request)
	}{
		"512 rows":           {512, true, nil},
		"256 rows":           {256, true, nil},
		"64 rows":            {64, false, nil},
		"as the host allows": {512, true, func(q *Request) { q.HostMemory = 400 << 30 }},
		"two devices":        {512, false, func(q *Request) { q.Devices, q.Order = 2, schedule.Lanes }},
		"slots given":        {512, true, func(q *Request) { q.Depths.ActivationSlots = 70 }},
		"recurrences":        {512, true, func(q *Request) { q.Config, q.HostMemory = testkit.Must(model.Preset("qwen3.5-9b"))(t), 1<<40 }},
		"MLPs alone": {512, false, func(q *Request) {
			for b := range q.Config.NumLayers {
				q.Config.Alone = append(q.Config.Alone, []model.Half{model.FirstHalf, model.SecondHalf}[b%2])
			}
		}},
		"a small host":          {512, false, func(q *Request) { q.HostMemory = 250 << 30 }},
		"a large device":        {512, false, func(q *Request) { q.DeviceMemory = 2 << 40 }},
		"a slow link":           {512, false, func(q *Request) { q.Config.IntermediateSize /= 64; q.Config.HiddenSize = 512 }},
		"one memory":            {512, false, func(q *Request) { q.OneMemory, q.HostMemory = true, 512<<30 }},
		"computed in place":     {512, false, func(q *Request) { q.Unified, q.HostMemory = true, 512<<30 }},
		"states on disks":       {512, false, func(q *Request) { q.StateDir, q.HostMemory, q.Depths.ActivationSlots = true, 200<<30, 70 }},
		"an evaluation":         {512, false, func(q *Request) { q.EvalOnly = true }},
		"hidden states on host": {512, false, func(q *Request) { q.HiddenStates = "host" }},
		"all computed again":    {512, false, func(q *Request) { q.Recompute = "full" }},
		"all kept":              {512, false, func(q *Request) { q.Recompute, q.DeviceMemory = "none", 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := with512GiB(t, c.rows)
			if c.change != nil {
				c.change(&q)
			}
			r := resolve(t, q)
			moves := slices.Contains(r.Spec.KeptOnHost, true)
			if over := beyond(r, q); over != "" || moves != c.travels || moves != (r.KeptSlots > 0) || moves != (r.TravelWords() != "") || moves != (r.TravelSpares() > 0) {
				t.Fatalf("%q travels, want %t: %s", r.TravelWords(), c.travels, over)
			}
			if q.StateDir { // also where some of the host is left
				q.HostMemory = 0
				if r.chooseTravel(q, r.saveOptions()); r.StateOnDisk == nil || r.KeptSlots > 0 {
					t.Errorf("%q travels beside states on disks", r.TravelWords())
				}
			}
			if r.Spec.OnHost && r.Spec.Keep.Anything() {
				t.Errorf("%s is kept beside hidden states on the host", r.Spec.Keep)
			}
			if !auto(q.Recompute) || r.EvalOnly || r.Spec.OnHost {
				return
			}
			options, near := r.saveOptions(), r.still(q)
			for level := layers.KeepAttention; level <= layers.KeepAll; level++ {
				v := *near
				v.send(q, options, level)
				for l := range v.Layouts {
					if each := v.KeptSlotBytes(); v.travels(l) && (v.SavedBytes(l) == 0 || v.SavedBytes(l) > int64(v.Spec.KeptOf.N)*each) {
						t.Errorf("%s, layer %d keeps %d bytes", v.TravelWords(), l, v.SavedBytes(l))
					}
				}
			}
			if still, moving := near.stepSeconds(options), r.stepSeconds(options); moves && moving > (1-travelWorth)*still {
				t.Errorf("a step takes about %g s, and %g s where nothing travels", moving, still)
			}
		})
	}
}

// TestTravelFits: for random budgets a plan keeps within host and device memory. Neither one micro-batch more nor one
// less would make the step shorter and fit. No plan saves more than travelGain promises.
func TestTravelFits(t *testing.T) {
	rnd, travelling, full := rand.New(rand.NewSource(7)), 0, 0
	for range testkit.Count(t, 200, 60) {
		q := with512GiB(t, 16+rnd.Intn(600))
		q.Config.NumLayers = 4 + rnd.Intn(25)
		q.DeviceMemory, q.HostMemory = int64(20+rnd.Intn(60))<<30, int64(100+rnd.Intn(900))<<30
		r, err := Resolve(q)
		if err != nil {
			continue
		}
		if over := beyond(r, q); over != "" {
			t.Fatalf("%s: %s", r.TravelWords(), over)
		}
		options := r.saveOptions()
		best := r.stepSeconds(options)
		near := r.still(q)
		if gain := near.stepSeconds(options) - best; gain > near.travelGain(q, options)*(1+1e-9) {
			t.Errorf("%s saves %g s, more than %g", r.TravelWords(), gain, near.travelGain(q, options))
		}
		if r.KeptSlots == 0 {
			continue
		}
		travelling++
		for _, more := range []int{1, -1} {
			v := *r
			if v.Spec.KeptOf.N += more; v.Spec.KeptOf.N > v.Spec.KeptOf.Of || v.Spec.KeptOf.N < 1 {
				continue
			}
			if beyond(&v, q) != "" {
				full++
			} else if s := v.stepSeconds(options); s < best {
				t.Errorf("%s: with %d of %d micro-batches a step takes %g s instead of %g", r.TravelWords(), v.Spec.KeptOf.N, v.Spec.KeptOf.Of, s, best)
			}
		}
	}
	if t.Logf("%d plans travel, the host is full in %d", travelling, full); travelling < 15 || full < 5 {
		t.Error("too few plans travel")
	}
}

// TestTravelWords: a plan says what travels, through which slots, and what that spares. The memory table has its bytes
// on the host, and the plan by layer names the blocks.
func TestTravelWords(t *testing.T) {
	r := resolve(t, with512GiB(t, 512))
	const words = "all of 7 of 32 micro-batches in blocks 1–27, through 4 slots of 1.5 GiB on the device"
	if got := r.TravelWords(); got != words {
		t.Errorf("%q, want %q", got, words)
	}
	bytes := int64(0)
	for _, row := range r.Table().Rows {
		if row.Purpose == "saved on host" && row.Detail == words {
			bytes += row.Bytes
		}
	}
	if one := r.keptBytes(5); bytes != 7*27*one {
		t.Errorf("%d bytes wait on the host, want 7 micro-batches of 27 blocks, %d each", bytes, one)
	}
	if got := strings.Join(r.KeptByLayer(), " "); strings.Count(got, "all on the host") != 27 || strings.Count(got, "all") != 28 {
		t.Error(got)
	}
	products, attention := r.Spec.BlockRecomputes(5, 0, 7*16384, 7*16*r.Spec.Config.BlockPairs(5, 1024))
	if got, want := r.TravelSpares(), 27*float64(products+attention); !near(got, want, 1e-6) {
		t.Errorf("%g FLOPs are spared, want %g", got, want)
	}
	r.Spec.KeptOnHost[9] = false
	if got := r.TravelWords(); !strings.Contains(got, "in blocks 1–8 and 10–27,") {
		t.Error(got)
	}
}
