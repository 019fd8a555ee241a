package actors

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"path/filepath"
	"slices"
	"testing"

	"mt/base/accounts"
	"mt/base/cluster"
	"mt/base/parallel"
	"mt/data"
	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/host"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
)

// randomRequest draws a small run that a user could configure: model, data type, experts, depths
// and disks. Tests plan it and compare the plan's memory with the run's.
func randomRequest(r *rand.Rand) plan.Request {
	tr := trial{blocks: 1 + r.Intn(4), tied: r.Intn(2) == 0, qkNorm: r.Intn(2) == 0}
	if r.Intn(3) == 0 {
		tr.experts = 1 + r.Intn(12)
		tr.chosen = 1 + r.Intn(min(3, tr.experts))
		tr.shared = r.Intn(2) == 0
	}
	c := tr.config()
	one := func(choices ...string) string { return choices[r.Intn(len(choices))] }
	some := func(least, n int) int { // automatic in half of the cases
		if r.Intn(2) == 0 {
			return 0
		}
		return least + r.Intn(n)
	}
	q := plan.Request{Config: c, Planes: recipe.Planes, GradDType: one("auto", "fp32", "bf16"), Recompute: one("auto", "full", "none"),
		MicroBatchTokens: some(1, 60), ChunkTokens: some(1, 20), Rows: 1 + r.Intn(8), RowTokens: 1 + r.Intn(30),
		Depths: plan.Depths{WeightSlots: some(1, 4), GradBuffers: some(1, 3), GradSlabs: some(2, 3), ActivationSlots: some(3, 20), BatchesAhead: some(1, 2)},
		Clip:   r.Intn(2) == 0, Unified: r.Intn(2) == 0, EvalOnly: r.Intn(4) == 0}
	if r.Intn(2) == 0 {
		q.Act, q.BF16Master = device.BF16, r.Intn(3) == 0
	}
	q.HeadShards = some(1, 8)
	switch {
	case q.Recompute == "none":
	case tr.experts == 0:
		q.HiddenStates = one("auto", "device", "host")
	case q.Rows%3 == 0: // without a draw, so that experts change no later one
		q.HiddenStates, c.SandwichNorms = "host", q.Rows > 3
	}
	if r.Intn(3) == 0 {
		q.Planes, q.NSSteps = muonRecipe.Planes, muonRecipe.NSSteps
		q.Depths.MatrixBuffers = some(1, 3)
	}
	return q
}

// randomShape is randomRequest that also draws sizes of the model, such as heads. Sometimes the
// device is made so small that the plan cannot grant everything that the request prefers.
func randomShape(r *rand.Rand) plan.Request {
	q := randomRequest(r)
	c := q.Config
	c.NumKVHeads = 1 + r.Intn(3)
	c.NumHeads, c.HeadDim = c.NumKVHeads*(1+r.Intn(3)), 2*(1+r.Intn(9))
	c.HiddenSize, c.IntermediateSize, c.MoEIntermediateSize, c.VocabSize = 1+r.Intn(70), 1+r.Intn(90), 1+r.Intn(40), 8+r.Intn(300)
	q.RowTokens += r.Intn(2) * r.Intn(200)
	if r.Intn(4) == 0 {
		q.Positions = q.RowTokens + r.Intn(3000)
	}
	if c.NumExperts > 0 && r.Intn(2) == 0 { // too few tokens for all experts
		q.Rows, q.RowTokens, q.Unified = 1, 1+r.Intn(3), false
	}
	if p, err := plan.Resolve(q); r.Intn(2) == 0 && err == nil {
		small := q
		small.DeviceMemory = 1 + int64(float64(p.Table().Device)*(0.3+0.7*r.Float64()))
		if _, err := plan.Resolve(small); err == nil {
			return small
		}
	}
	return q
}

// lessHost sometimes gives q less host memory than its plan needs, and a disk that can take
// optimizer states instead.
func lessHost(r *rand.Rand, q plan.Request) plan.Request {
	if p, err := plan.Resolve(q); r.Intn(3) == 0 && err == nil && !q.EvalOnly {
		small := q
		t := p.Table()
		small.StateDir, small.Depths.StateSlots, small.HostMemory = true, r.Intn(4), t.Host
		if q.Unified {
			small.HostMemory += t.AllDevices
		}
		small.HostMemory -= int64(r.Float64() * t.PerParam * float64(t.Params))
		if _, err := plan.Resolve(small); err == nil {
			return small
		}
	}
	return q
}

// tableOf returns p's memory table by purpose. It leaves out memory of the program that no counter covers
// (internal/run's TestMemoryIsAsPlanned measures it) and a GPU's context, which precedes the run.
func tableOf(p *plan.Run) map[string]int64 {
	names := map[string]string{"host staging": "device host staging", "host matrix buffers": "device host staging", "host gradient shares": "host gradient slabs"}
	planned := map[string]int64{}
	for _, row := range p.Table().Rows {
		name := row.Where + " " + row.Purpose
		if to, ok := names[name]; ok {
			name = to
		}
		if row.Purpose != "program" && row.Where != "disk" && row.Bytes != 0 {
			planned[name] += row.Bytes
		}
	}
	return planned
}

// unlike compares the most memory that a run held at once, by purpose, with p's table: dev on the
// device, arenas on the host. It describes the difference in its error.
func unlike(p *plan.Run, dev [accounts.NumPurposes]int64, arenas [accounts.NumPurposes]int64) error {
	used, planned := map[string]int64{}, tableOf(p)
	for i, n := range dev {
		if n != 0 {
			used["device "+accounts.Purpose(i).String()] = n
		}
	}
	for i, n := range arenas {
		if n != 0 {
			used["host "+accounts.Purpose(i).String()] = n
		}
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if used[name] != planned[name] {
			wrong = append(wrong, fmt.Errorf("%s: %d bytes are held, %d planned", name, used[name], planned[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		if _, ok := used[name]; !ok {
			wrong = append(wrong, fmt.Errorf("%s: nothing is held, %d bytes are planned", name, planned[name]))
		}
	}
	return errors.Join(wrong...)
}

// minus returns a − b for each purpose.
func minus(a, b [accounts.NumPurposes]int64) [accounts.NumPurposes]int64 {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

var memoryRequests = flag.Int("memory-requests", 0, "how many requests TestPlanIsWhatIsAllocated draws; 0: some")

// requests returns how many random requests a test draws: the flag's value, or a number for short
// or long tests.
func requests(t *testing.T) int {
	t.Helper()
	switch {
	case *memoryRequests > 0:
		return *memoryRequests
	case testing.Short():
		return 15
	}
	return testkit.Count(t, 300, 120)
}

// TestPlanIsWhatIsAllocated: for random requests, the plan's table equals the most memory that the
// run holds, to the byte and for each purpose, on device and host. So the run fits a device of
// exactly that size, and none smaller.
func TestPlanIsWhatIsAllocated(t *testing.T) {
	met := map[string]int{}
	n := requests(t)
	for seed := range int64(n) {
		r := rand.New(rand.NewSource(seed))
		q := lessHost(r, randomShape(r))
		if pairs := q; seed%3 == 0 {
			pairs.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}
			if _, err := plan.Resolve(pairs); err == nil { // a small device may lack memory for pairs
				q = pairs
			}
		}
		if rounds := q; seed%4 == 1 {
			rounds.AnyOrder, rounds.Rounds = true, 2+r.Intn(3)
			if _, err := plan.Resolve(rounds); err == nil { // some runs can have only one round
				q = rounds
			}
		}
		p, err := plan.Resolve(q)
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, q, err)
		}
		if p.StateOnDisk != nil && r.Intn(2) == 0 { // models so small gain nothing by it
			p.WeightsOnDisk = make([]bool, len(p.Layouts))
			for l, onDisk := range p.StateOnDisk {
				p.WeightsOnDisk[l] = onDisk && p.Layouts[l].Kind != model.Embedding && p.Layouts[l].Kind != model.Head
			}
		}
		if p.StateOnDisk != nil && p.Clip && p.Rounds <= 1 && r.Intn(2) == 0 {
			p.GradOnDisk = make([]bool, len(p.Layouts))
			for l, onDisk := range p.StateOnDisk {
				p.GradOnDisk[l] = onDisk && p.Layouts[l].Kind != model.Embedding && p.Layouts[l].Kind != model.Head && r.Intn(4) > 0
			}
		}
		drawn := !p.EvalOnly && !p.Spec.OnHost && r.Intn(4) == 0 // small models never make some choices
		if drawn {
			p.Spec.Keep = randomKeeps(r, q.Config.NumLayers)
		}
		if !p.Unified && p.StateOnDisk == nil && seed%2 == 0 { // small models gain nothing by it
			letTravel(p, 1+int(seed)%4, 1+int(seed)/2)
		}
		threads := 1 + r.Intn(3)
		need := p.Table().Device
		if err := allocated(t, p, threads, need); err != nil {
			t.Errorf("seed %d: %v\n%+v", seed, err, q)
		}
		var lack *device.OutOfMemory
		if err := allocated(t, p, threads, need-1); !errors.As(err, &lack) {
			t.Errorf("seed %d: a device of %d bytes, one too few: %v", seed, need-1, err)
		}
		if t.Failed() {
			t.FailNow()
		}
		for what, is := range map[string]bool{"small device": q.DeviceMemory > 0, "states on disks": p.StateOnDisk != nil, "weights on disks": p.ParamBufferBytes() > 0, "gradients on disks": p.GradDiskBytes() > 0, "spilled": p.SpillBytes() > 0, "hidden states on the host": p.Spec.OnHost, "evaluation": p.EvalOnly, "pairs": !p.Spec.Preference.None(),
			"rounds": min(p.Rounds, p.Limits.MicroBatches) > 1,
			"tied":   q.Config.TieEmbeddings, "copied": !p.Unified, "in place": p.Unified, "gradients in place": p.GradsInPlace(), "slabs": !p.Clip && !p.EvalOnly,
			"bf16": q.Act == device.BF16, "bf16 gradients": p.GradBF16, "parts of the head": p.Spec.Shards() > 1, "micro-batches": p.Limits.MicroBatches > 1,
			"experts ahead": p.Experts > 0 && !p.OnDemand && !p.Unified, "experts on demand": p.OnDemand, "experts in place": p.Experts > 0 && p.Unified,
			"matrices copied": p.MatrixBytes() > 0 && !p.Unified, "matrices in place": p.MatrixBytes() > 0 && p.Unified,
			"chosen by block": !drawn && differ(p.Spec.Keep), "drawn by block": drawn && differ(p.Spec.Keep), "kept: " + p.Spec.Keep.Of(0).String(): true,
			"travelling": p.KeptSlots > 0, "travelling in part": p.KeptSlots > 0 && p.Spec.KeptOf.N < p.Spec.KeptOf.Of, "travelling beside experts": p.KeptSlots > 0 && p.Experts > 0} {
			if is {
				met[what]++
			}
		}
	}
	if t.Logf("%v", met); n >= 100 && len(met) != 28+int(layers.KeepInputs)+1 {
		t.Errorf("not all kinds of runs were drawn: %v", met)
	}
}

// TestRecordingsArePlanned: for each recorded model the plan's table equals the bytes that a run holds, with weights
// copied to a device and in place, in fp32 and bf16.
func TestRecordingsArePlanned(t *testing.T) {
	testkit.NotShort(t)
	for _, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c := testkit.Must(model.LoadDir(filepath.Join(dir, "model")))(t)
			for _, unified := range []bool{false, true} {
				for _, act := range []device.DType{device.F32, device.BF16} {
					q := plan.Request{Config: c, Planes: recipe.Planes, Act: act, GradDType: "auto", Recompute: "auto", Rows: 3, RowTokens: 20, MicroBatchTokens: 40, Clip: true, Unified: unified}
					p := testkit.Must(plan.Resolve(q))(t)
					if err := allocated(t, p, 1, 0); err != nil {
						t.Errorf("%v, in place %v: %v", act, unified, err)
					}
					if letTravel(p, 2, 1); p.KeptSlots == 0 {
						t.Error("nothing can travel")
					} else if err := allocated(t, p, 1, 0); !unified && err != nil {
						t.Errorf("%v, travelling: %v", act, err)
					}
				}
			}
		})
	}
}

// letTravel lets all that blocks keep of n micro-batches of a round, or of as many as it has, travel through this number
// of slots, as a plan for a large model does. It changes nothing if blocks keep nothing.
func letTravel(p *plan.Run, slots, n int) {
	on, rounds := make([]bool, p.Spec.Config.Blocks()), max(1, p.Rounds)
	of := (p.Limits.MicroBatches + rounds - 1) / rounds
	for l, layout := range p.Layouts {
		if layout.Kind.BeginsBlock() && p.SavedBytes(l) > 0 && !p.Spec.OnHost {
			on[layout.Block], p.KeptSlots = true, slots
		}
	}
	if p.KeptSlots > 0 {
		p.Spec.KeptOnHost, p.Spec.KeptOf = on, schedule.Share{N: 1 + (n-1)%of, Of: of}
	}
}

// differ reports whether blocks keep different things.
func differ(keeps layers.Keeps) bool {
	return len(keeps) > 0 && slices.Min(keeps) != slices.Max(keeps)
}

// allocated makes a run's buffers as plan p says, on a CPU device with a limit of `limit` bytes.
// Its error says how the allocated bytes differ from p's table.
func allocated(t *testing.T, p *plan.Run, threads int, limit int64) error {
	t.Helper()
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1, Unified: p.Unified, MemoryLimit: limit}))(t)
	defer dev.Close()
	return allocatedOn(t, dev, p, threads)
}

// allocatedOn is allocated for a given device: it makes the buffers of plan p on dev and compares
// their bytes with p's table.
func allocatedOn(t *testing.T, dev device.Device, p *plan.Run, threads int) error {
	t.Helper()
	pool := parallel.New(threads)
	defer pool.Close()
	before := host.Usage().Now
	o := Options{Pool: pool, Plan: p}
	var shares []optim.Share
	if p.Ranks > 1 {
		o.World, shares = lonelyWorld{p}, p.OwnShares()
	}
	store := testkit.Must(host.NewTieredStore(p.Layouts, p.Planes, shares, openTier(t, p), pool))(t)
	defer store.Close()
	o.Home = store
	once := testkit.Must(newRun(&o))(t)
	defer once.close()
	if _, err := newLane(once, 0, dev); err != nil {
		return err
	}
	return unlike(p, dev.Usage().Peak, minus(host.Usage().Now, before))
}

// lonelyWorld implements the connection to the other ranks for a rank that only allocates its
// memory and sends nothing.
type lonelyWorld struct{ p *plan.Run }

func (w lonelyWorld) Rank() int                            { return w.p.Rank }
func (w lonelyWorld) Size() int                            { return w.p.Ranks }
func (w lonelyWorld) Hosts() []string                      { return make([]string, w.p.Ranks) }
func (w lonelyWorld) NewComm(string) (cluster.Comm, error) { return nil, nil }
func (w lonelyWorld) Abort(string)                         {}
func (w lonelyWorld) Close() error                         { return nil }

// TestPlanIsWhatARankAllocates: with several ranks, the plan's table of every rank equals the bytes
// that the rank's run allocates. Memory in which rank 0 collects layers for checkpoints is left
// out, because internal/run allocates it.
func TestPlanIsWhatARankAllocates(t *testing.T) {
	exchanged := 0
	for seed := range int64(requests(t) / 3) {
		r := rand.New(rand.NewSource(seed))
		q := randomShape(r)
		q.EvalOnly, q.NSSteps, q.Planes, q.Units, q.Depths.MatrixBuffers = false, 0, recipe.Planes, recipe.Units, 0
		q.DeviceMemory = 0
		if q.Ranks = 2 + r.Intn(3); q.Depths.GradSlabs == 1 {
			q.Depths.GradSlabs = 2
		}
		for q.Rank = range q.Ranks {
			q := lessHost(r, q)
			p, err := plan.Resolve(q)
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, q, err)
			}
			err = allocatedBut(t, p, p.CollectBytes())
			if err != nil {
				t.Fatalf("seed %d, rank %d of %d: %v\n%+v", seed, q.Rank, q.Ranks, err, q)
			}
			if p.ExchangeBytes() > 0 {
				exchanged++
			}
		}
	}
	if exchanged == 0 {
		t.Error("no rank exchanges anything")
	}
}

// allocatedBut compares the allocated bytes of one rank with p's table, without the `collected`
// bytes that internal/run allocates to collect layers for checkpoints.
func allocatedBut(t *testing.T, p *plan.Run, collected int64) error {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1, Unified: p.Unified, MemoryLimit: p.Table().Device})
	testkit.NoError(t, err)
	defer dev.Close()
	err = allocatedOn(t, dev, p, 1)
	want := fmt.Sprintf("host collected layer: nothing is held, %d bytes are planned", collected)
	if collected == 0 {
		return err
	}
	if err == nil || err.Error() != want {
		return fmt.Errorf("got %v, want %s", err, want)
	}
	return nil
}

// trialOf returns a trial (a small training run) of request q, with the settings that plan p found
// for it.
func trialOf(q plan.Request, p *plan.Run) trial {
	tr := trial{tied: q.Config.TieEmbeddings, qkNorm: q.Config.QKNorm, bf16: q.Act == device.BF16, gradBF16: p.GradBF16, copyTiles: !q.Unified,
		blocks: q.Config.NumLayers, rows: q.Rows, micro: p.Limits.MicroBatchTokens, steps: 2, maxLen: q.RowTokens, keeps: p.Spec.Keep,
		experts: q.Config.NumExperts, chosen: q.Config.NumExpertsPerTok, shared: q.Config.SharedSize > 0, shards: p.Spec.HeadShards, depths: p.Depths, noClip: !q.Clip, threads: 1, evalSteps: 1, planned: p, muon: p.NSSteps > 0, pairs: q.Preference.Kind}
	if q.MicroBatchTokens > 0 {
		tr.micro = q.MicroBatchTokens
	}
	return tr
}

// TestPlannedRunsWork trains with resolved random requests. The planned buffers are large enough for ragged batches,
// and a run allocates nothing else.
func TestPlannedRunsWork(t *testing.T) {
	testkit.NotShort(t)
	r := rand.New(rand.NewSource(5))
	spilled := 0
	for i := range 25 {
		q := randomRequest(r)
		if i%3 == 0 {
			q.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}
		}
		q.EvalOnly, q.RowTokens = false, max(q.RowTokens, 3)
		p := testkit.Must(plan.Resolve(q))(t)
		out := mustRun(t, trialOf(q, p))
		if len(out.evals) != 2 {
			t.Errorf("%d evaluations", len(out.evals))
		}
		if err := unlike(p, out.usage.Peak, out.arenas); err != nil {
			t.Errorf("%v\n%+v", err, q)
		}
		if p.SpillBytes() > 0 {
			spilled++
		}
	}
	if spilled < 3 {
		t.Errorf("only %d runs could spill", spilled)
	}
}

// TestLimitsBoundEveryBatch: batches of random rows, packed into micro-batches in the worst way,
// stay within plan.NewLimits, from which buffers are sized.
func TestLimitsBoundEveryBatch(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	for range 3000 {
		n, longest, most, vocab := 1+r.Intn(12), 1+r.Intn(9), 1+r.Intn(20), 1+r.Intn(40)
		l := plan.NewLimits(n, longest, most, vocab)
		rows := make([]data.Row, 1+r.Intn(n))
		for i := range rows {
			tokens := 1 + r.Intn(longest)
			switch r.Intn(3) { // a short row and a row that does not fit beside it
			case 0:
				tokens = 1
			case 1:
				tokens = min(longest, most)
			}
			for range tokens {
				rows[i].IDs = append(rows[i].IDs, int32(r.Intn(vocab)))
			}
		}
		res := &run{plan: &plan.Run{Limits: l}}
		if err := res.checkBatch(data.NewBatch(1, rows, most)); err != nil {
			t.Fatalf("%d rows of at most %d tokens, micro-batches of %d: %v", n, longest, most, err)
		}
	}
}

// TestLimitsOfBatches: a batch at every limit is accepted, and a batch beyond any limit is rejected.
func TestLimitsOfBatches(t *testing.T) {
	b := &data.Batch{Tokens: 10, MicroBatches: []data.MicroBatch{{Tokens: 6}, {Tokens: 4}}, UniqueIDs: []int32{1, 2, 3}}
	limits := plan.Limits{Tokens: 10, MicroBatchTokens: 6, MicroBatches: 2, UniqueIDs: 3}
	for name, lower := range map[string]func(l *plan.Limits){"": func(*plan.Limits) {}, "tokens": func(l *plan.Limits) { l.Tokens-- },
		"tokens of a micro-batch": func(l *plan.Limits) { l.MicroBatchTokens-- }, "micro-batches": func(l *plan.Limits) { l.MicroBatches-- },
		"unique ids": func(l *plan.Limits) { l.UniqueIDs-- }} {
		l := limits
		lower(&l)
		err := (&run{plan: &plan.Run{Limits: l}}).checkBatch(b)
		if (err == nil) != (name == "") {
			t.Errorf("one fewer %s: %v", name, err)
		}
	}
}
