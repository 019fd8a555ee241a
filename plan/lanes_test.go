package plan

import (
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// TestLayersAreSharedOut: whatever the layers weigh, no lane exceeds the average load by more than
// two layers, and every lane has a layer. Layers of equal weight go round the lanes.
func TestLayersAreSharedOut(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 500 {
		n, weights := 2+r.Intn(4), make([]float64, 0, 40)
		for range n + r.Intn(40) {
			weights = append(weights, 1+float64(r.Intn(9)))
		}
		lanes, load, sum := assign(alike(weights, n)), make([]float64, n), 0.0
		for l, w := range weights {
			load[lanes[l]] += w
			sum += w
		}
		if most := slices.Max(load); most > sum/float64(n)+2*slices.Max(weights) || slices.Min(load) == 0 {
			t.Fatalf("weights %v are shared out as %v: loads %v", weights, lanes, load)
		}
	}
	if got, want := assign(alike([]float64{1, 1, 1, 1, 1, 1, 1}, 3)), []int{0, 1, 2, 0, 1, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("equal layers are on lanes %v, want %v", got, want)
	}
	experts, lanes := map[int]int{}, assign(alike([]float64{0, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 3}, 2))
	for l := 2; l < 13; l += 2 {
		experts[lanes[l]]++
	}
	if experts[0] < 2 || experts[1] < 2 {
		t.Errorf("layers with experts are on lanes %v", lanes)
	}
}

// alike returns the same weights for each of n devices.
func alike(weights []float64, n int) [][]float64 { return slices.Repeat([][]float64{weights}, n) }

// TestDevicesThatDiffer: a device that is k times as fast gets about k times as many layers. A
// resumed run's recorded assignment stays, unless it is for another number of devices. Each device
// needs memory for its own layers only. A device so slow that it gets no layer is an error.
func TestDevicesThatDiffer(t *testing.T) {
	q := lanesRequest(rand.New(rand.NewSource(1)), 2)
	q.Config.NumLayers, q.Unified, q.EvalOnly, q.Devices, q.Config.VocabSize, q.MicroBatchTokens, q.Recompute = 22, false, false, 2, 24, q.RowTokens, "full"
	resolve := func(change func(*Request)) (*Run, error) {
		q := q
		change(&q)
		return Resolve(q)
	}
	with := func(paces ...Pace) func(*Request) { return func(q *Request) { q.Paces = paces } }
	for _, faster := range []float64{1, 2, 3} {
		for _, paces := range [][]Pace{{{FLOPs: faster * 1e12, Link: faster * 1e9}, {FLOPs: 1e12, Link: 1e9}}, {{FLOPs: 1e15, Link: faster * 1e6}, {FLOPs: 1e15, Link: 1e6}}, {{FLOPs: faster * 1e6, Link: 1e12}, {FLOPs: 1e6, Link: 1e12}}} {
			r := testkit.Must(resolve(with(paces...)))(t)
			first := 0
			for _, lane := range r.Lane {
				first += 1 - lane
			}
			if want := 24 * faster / (1 + faster); math.Abs(float64(first)-want) > 2 {
				t.Errorf("a device %g times as fast as the other has %d of 24 layers: %v", faster, first, r.Lane)
			}
			if idle := r.Idle(); idle < 0 || idle > 0.9 {
				t.Errorf("devices stand still for %g of the time", idle)
			}
		}
	}
	table := make([]int, 24)
	table[3] = 1
	kept, err := resolve(func(q *Request) { q.Lane = table })
	if err != nil || !slices.Equal(kept.Lane, table) {
		t.Fatalf("the table %v is not kept: %v (%v)", table, kept.Lane, err)
	}
	if r, err := resolve(func(q *Request) { q.Lane, q.Devices = table, 3 }); err != nil || r.Lanes() != 3 {
		t.Errorf("a table for two devices on three: %v (%v)", r, err)
	}
	need := kept.Table().devices
	fits := func(first, second int64) bool {
		r, err := resolve(func(q *Request) {
			q.Lane, q.LaneMemory, q.DeviceMemory, q.Depths = table, []int64{first, second}, min(first, second), kept.Depths
			q.HeadShards = kept.Spec.Shards()
		})
		return err == nil && slices.Equal(r.Table().devices, need)
	}
	if need[0] == need[1] || !fits(need[0], need[1]) || !fits(need[0], 0) || fits(need[0]-1, need[1]) || fits(need[0], need[1]-1) {
		t.Errorf("devices that need %v of memory each", need)
	}
	if _, err := resolve(with(Pace{1e12, 1e9}, Pace{1, 1})); err == nil || !strings.Contains(err.Error(), "device 1 is so much slower than the others that no layer is left for it: give the run the other devices only") {
		t.Errorf("a device that is much too slow: %v", err)
	}
}

// lanesRequest returns a small random request for at most n devices.
func lanesRequest(r *rand.Rand, n int) Request {
	c := &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 40, HiddenSize: 24, IntermediateSize: 40, NumLayers: 1 + r.Intn(6), NumHeads: 4, NumKVHeads: 2,
		HeadDim: 6, MaxPositions: 64, RMSNormEps: 1e-5, TieEmbeddings: r.Intn(2) == 0, Rope: model.Rope{Type: "default", Theta: 10000}}
	return Request{Config: c, Order: schedule.Lanes, Devices: min(n, c.NumLayers+2), Rows: 1 + r.Intn(8), RowTokens: 1 + r.Intn(20), Clip: r.Intn(2) == 0, Unified: r.Intn(2) == 0,
		MicroBatchTokens: r.Intn(2) * (1 + r.Intn(40)), HeadShards: 1 + r.Intn(3), EvalOnly: r.Intn(4) == 0}
}

// TestWhatBitsDependOnIsThatOfOneDevice: everything that fixes the order of sums, but the number of the head's parts, is
// the same for one and for several devices: micro-batches, chunks and the gradients' dtype.
func TestWhatBitsDependOnIsThatOfOneDevice(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 60 {
		q := lanesRequest(r, 1+r.Intn(4))
		q.HeadShards, q.MicroBatchTokens, q.Devices = 0, 0, 0
		one, err := Resolve(q)
		testkit.NoError(t, err)
		q.DeviceMemory = one.Table().Device/2 + int64(r.Intn(int(one.Table().Device)))
		one, err = Resolve(q)
		if err != nil {
			continue // it does not fit on one
		}
		q.Devices, q.HeadShards = min(3, len(one.Layouts)), one.Spec.Shards()
		several, err := Resolve(q)
		if err != nil {
			continue
		}
		if a, b := one.Spec, several.Spec; a.Shards() != b.Shards() || a.MaxTokens != b.MaxTokens || a.ChunkTokens != b.ChunkTokens || a.HeadChunk != b.HeadChunk || one.GradBF16 != several.GradBF16 {
			t.Errorf("%+v:\none device  %+v\nseveral     %+v", q, a, b)
		}
	}
}

// TestLanesSpillNoMoreThanPlanned: the activations that a lane's programs spill to the host fit in
// the planned memory, for any number of activation slots.
func TestLanesSpillNoMoreThanPlanned(t *testing.T) {
	r, spilled := rand.New(rand.NewSource(3)), 0
	for range 150 {
		q := lanesRequest(r, 2+r.Intn(3))
		run := testkit.Must(Resolve(q))(t)
		tokens := make([]int, run.Limits.MicroBatches)
		for i := range tokens {
			tokens[i] = run.Limits.Tokens / len(tokens)
		}
		for _, slots := range []int{minActSlots, minActSlots + r.Intn(12), run.allActivations()} {
			run.Depths.ActivationSlots = slots
			s := run.Schedule()
			s.Eval = q.EvalOnly
			programs := testkit.Must(schedule.Programs(s, tokens))(t)
			for lane, p := range programs {
				if need, has := run.ActivationBytes(p.HostTokens), run.On(lane).SpillBytes(); need > has {
					t.Fatalf("%d slots: lane %d of %v spills %d bytes, %d are planned", slots, lane, run.Lane, need, has)
				}
				spilled += p.HostTokens
			}
		}
	}
	if spilled == 0 {
		t.Error("nothing was spilled")
	}
}

// TestIdleLanes: with 16 micro-batches two lanes idle for at most 8 % of a step. With a single
// micro-batch one lane always waits for the other, so lanes idle for about half of it.
func TestIdleLanes(t *testing.T) {
	q := lanesRequest(rand.New(rand.NewSource(4)), 2)
	q.Config.NumLayers, q.Config.VocabSize, q.Rows, q.RowTokens, q.EvalOnly, q.HeadShards, q.Devices = 16, 40, 16, 16, false, 1, 2
	for micro, want := range map[int][2]float64{256: {0.45, 0.5}, 16: {0, 0.08}} {
		q.MicroBatchTokens = micro
		run := testkit.Must(Resolve(q))(t)
		if got := run.Idle(); got < want[0] || got > want[1]+1e-9 {
			t.Errorf("micro-batches of %d tokens, %d of them: two lanes stand still for %.3f of the time, want %v", micro, run.Limits.MicroBatches, got, want)
		}
	}
	q.Devices = 0
	if run, err := Resolve(q); err != nil || math.Abs(run.Idle()) > 0 {
		t.Errorf("one lane: %v, %v", run.Idle(), err)
	}
}

// TestSimulationTakesTheWeights: the simulated seconds of all lanes together are the weights of the layers, with a whole
// head and with one in parts.
func TestSimulationTakesTheWeights(t *testing.T) {
	q := lanesRequest(rand.New(rand.NewSource(4)), 2)
	q.Rows, q.RowTokens, q.MicroBatchTokens, q.Clip, q.EvalOnly = 16, 16, 16, true, false
	for _, q.HeadShards = range []int{1, 4} {
		r, want := testkit.Must(Resolve(q))(t), 0.0
		for _, w := range r.weights(r.pace(0)) {
			want += w
		}
		if busy, _ := r.play(); math.Abs(busy-want) > 1e-9*want {
			t.Errorf("%d parts: %g s of work, want %g", q.HeadShards, busy, want)
		}
	}
}

// TestPartsOfTheHead: where the head is the longest visit, as many parts as help go to lanes of their own. A run that
// cannot pass on their sums keeps the head on one lane. A recorded number of parts stays, and lanes share them.
func TestPartsOfTheHead(t *testing.T) {
	q := lanesRequest(rand.New(rand.NewSource(4)), 2)
	q.Config.NumLayers, q.Config.VocabSize, q.Config.TieEmbeddings = 12, 4096, false
	q.Rows, q.RowTokens, q.MicroBatchTokens, q.Clip, q.EvalOnly, q.HeadShards, q.Devices = 64, 16, 16, true, false, 0, 4
	lanesOf := func(change func(*Request)) (int, []int, float64) {
		q := q
		change(&q)
		r := testkit.Must(Resolve(q))(t)
		end := 0.0
		if r.Lane != nil {
			_, end = r.play()
		}
		if of := slices.Compact(slices.Clone(r.Spec.HeadLanes)); len(of) > 0 && len(of) != len(slices.Compact(slices.Sorted(slices.Values(of)))) {
			t.Errorf("parts of the head on lanes %v: those of a lane do not follow each other", r.Spec.HeadLanes)
		}
		if of := r.Spec.HeadLanes; of != nil && (of[0] != r.Lane[r.Head()] || !strings.Contains(r.LaneWords(), " parts of the head")) {
			t.Errorf("parts of the head on %v, layers on %v: %s", of, r.Lane, r.LaneWords())
		}
		return r.Spec.Shards(), r.Spec.HeadLanes, end
	}
	parts, lanes, end := lanesOf(func(*Request) {})
	if _, whole, before := lanesOf(func(q *Request) { q.HeadShards = 1 }); parts < 3 || len(lanes) != parts || whole != nil || end > 0.8*before {
		t.Errorf("%d parts on lanes %v take %g s, a whole head on %v takes %g s", parts, lanes, end, whole, before)
	}
	if parts, lanes, _ := lanesOf(func(q *Request) { q.HeadShards = 9 }); parts != 9 || slices.Max(lanes)-slices.Min(lanes) != 3 {
		t.Errorf("%d parts on lanes %v, want 9 on four", parts, lanes)
	}
	apart := testkit.Must(Resolve(q))(t)
	for _, given := range [][]int{apart.Placement(), apart.Lane} { // a run of today, and one from before heads had parts on lanes
		q.Lane, q.HeadShards, q.Paces = given, apart.Spec.Shards(), []Pace{{1e12, 1e9}, {2e12, 1e9}, {3e12, 1e9}, {4e12, 1e9}}
		if r, err := Resolve(q); err != nil || !slices.Equal(r.Placement(), given) {
			t.Errorf("the table %v is not kept: %v (%v)", given, r.Placement(), err)
		}
	}
	q.Lane, q.HeadShards, q.Paces = nil, 0, nil
	for what, change := range map[string]func(*Request){
		"gradients that take turns in slabs": func(q *Request) { q.Clip = false },
		"hidden states on the host":          func(q *Request) { q.HiddenStates = "host" },
		"one device":                         func(q *Request) { q.Devices = 1 },
		"a small vocabulary":                 func(q *Request) { q.Config = withVocabulary(q.Config, 32) },
	} {
		if parts, lanes, _ := lanesOf(change); parts != 1 || lanes != nil {
			t.Errorf("%s: %d parts on lanes %v", what, parts, lanes)
		}
	}
}

func withVocabulary(c *model.Config, n int) *model.Config {
	out := *c
	out.VocabSize = n
	return &out
}
