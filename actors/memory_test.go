package actors

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"

	"mt/data"
	"mt/device"
	"mt/device/cpu"
	"mt/host"
	"mt/internal/parallel"
	"mt/plan"
)

// randomRequest is any run that mt could be asked for, small.
func randomRequest(r *rand.Rand) plan.Request {
	tr := trial{blocks: 1 + r.Intn(4), tied: r.Intn(2) == 0, qkNorm: r.Intn(2) == 0}
	if r.Intn(3) == 0 {
		tr.experts = 1 + r.Intn(12)
		tr.chosen = 1 + r.Intn(min(3, tr.experts))
	}
	c := tr.config()
	one := func(choices ...string) string { return choices[r.Intn(len(choices))] }
	some := func(least, n int) int { // automatic half of the time
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
		q.Act = device.BF16
	}
	q.HeadShards = some(1, 8)
	return q
}

// TestPlanIsWhatIsAllocated: for many requests every row of the plan's table is
// what the run holds for that purpose, to within the alignment of each piece.
func TestPlanIsWhatIsAllocated(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	pool := parallel.New(1)
	defer pool.Close()
	for trial := range 150 {
		q := randomRequest(r)
		p, err := plan.Resolve(q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if err := compareUsage(t, p, pool); err != nil {
			t.Fatalf("trial %d: %v\n%+v", trial, err, q)
		}
	}
}

// compareUsage allocates what p says and compares it with p's table.
func compareUsage(t *testing.T, p *plan.Run, pool *parallel.Pool) error {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1, Unified: p.Unified})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	before := host.Usage().Now
	store, err := host.NewStore(p.Layouts, p.Planes, pool)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	once, err := newShared(&Options{Home: store, Pool: pool, Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	defer once.close()
	if _, err := newLane(once, 0, dev); err != nil {
		t.Fatal(err)
	}
	used := map[string]int64{}
	for i, n := range dev.Usage().Now {
		used["device "+device.Purpose(i).String()] += n
	}
	for i, n := range host.Usage().Now {
		used["host "+host.Purpose(i).String()] += n - before[i]
	}
	names := map[string]string{"host staging": "device host staging", "host spilled activations": "device host staging"}
	planned := map[string]int64{}
	for _, row := range p.Table().Rows {
		if row.Purpose == "program" {
			continue // the process itself
		}
		name := row.Where + " " + row.Purpose
		if to, ok := names[name]; ok {
			name = to
		}
		planned[name] += row.Bytes
	}
	var wrong []error
	for name := range used {
		// A layer's tile, planes and moments begin on pages, device memory at Align.
		slack := int64(64 * device.Align)
		if name == "host weights" || name == "host lo planes" || name == "host moments" {
			slack = int64(2*len(p.Layouts)) * 4096
		}
		if over := used[name] - planned[name]; over < 0 || over > slack {
			wrong = append(wrong, fmt.Errorf("%s: %d bytes are held, %d planned", name, used[name], planned[name]))
		}
	}
	for name := range planned {
		if _, ok := used[name]; !ok {
			wrong = append(wrong, fmt.Errorf("%s is planned and nothing is counted for it", name))
		}
	}
	return errors.Join(wrong...)
}

// TestPlannedRunsWork trains with what Resolve makes of random requests: the
// buffers it sizes are enough for ragged batches.
func TestPlannedRunsWork(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	spilled := 0
	for range 25 {
		q := randomRequest(r)
		q.EvalOnly, q.RowTokens = false, max(q.RowTokens, 3)
		p, err := plan.Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		tr := trial{tied: q.Config.TieEmbeddings, qkNorm: q.Config.QKNorm, bf16: q.Act == device.BF16, gradBF16: p.GradBF16, copyTiles: !q.Unified,
			blocks: q.Config.NumLayers, rows: q.Rows, micro: p.Limits.MicroBatchTokens, steps: 2, maxLen: q.RowTokens, keep: p.Spec.Keep,
			experts: q.Config.NumExperts, chosen: q.Config.NumExpertsPerTok, shards: p.Spec.HeadShards, depths: p.Depths, noClip: !q.Clip, threads: 1, evalSteps: 1, planned: p}
		if q.MicroBatchTokens > 0 {
			tr.micro = q.MicroBatchTokens
		}
		if out := mustRun(t, tr); len(out.evals) != 2 {
			t.Errorf("%d evaluations", len(out.evals))
		}
		if p.SpillBytes() > 0 {
			spilled++
		}
	}
	if spilled < 3 {
		t.Errorf("only %d runs could spill", spilled)
	}
}

// TestLimitsBoundEveryBatch: whatever the rows, a batch is within the limits that
// buffers are sized by, also where rows are such that micro-batches are as many,
// and as empty, as they can be.
func TestLimitsBoundEveryBatch(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	for range 3000 {
		n, longest, most, vocab := 1+r.Intn(12), 1+r.Intn(9), 1+r.Intn(20), 1+r.Intn(40)
		l := plan.NewLimits(n, longest, most, vocab)
		rows := make([]data.Row, 1+r.Intn(n))
		for i := range rows {
			tokens := 1 + r.Intn(longest)
			switch r.Intn(3) { // a short row and one that does not fit beside it
			case 0:
				tokens = 1
			case 1:
				tokens = min(longest, most)
			}
			for range tokens {
				rows[i].IDs = append(rows[i].IDs, int32(r.Intn(vocab)))
			}
		}
		res := &shared{plan: &plan.Run{Limits: l}}
		if err := res.checkBatch(data.NewBatch(1, rows, most)); err != nil {
			t.Fatalf("%d rows of at most %d tokens, micro-batches of %d: %v", n, longest, most, err)
		}
	}
}

// TestLimitsOfBatches: a batch at every limit is taken, one beyond any of them is not.
func TestLimitsOfBatches(t *testing.T) {
	b := &data.Batch{Tokens: 10, MicroBatches: []data.MicroBatch{{Tokens: 6}, {Tokens: 4}}, UniqueIDs: []int32{1, 2, 3}}
	limits := plan.Limits{Tokens: 10, MicroBatchTokens: 6, MicroBatches: 2, UniqueIDs: 3}
	for name, lower := range map[string]func(l *plan.Limits){"": func(*plan.Limits) {}, "tokens": func(l *plan.Limits) { l.Tokens-- },
		"tokens of a micro-batch": func(l *plan.Limits) { l.MicroBatchTokens-- }, "micro-batches": func(l *plan.Limits) { l.MicroBatches-- },
		"unique ids": func(l *plan.Limits) { l.UniqueIDs-- }} {
		l := limits
		lower(&l)
		err := (&shared{plan: &plan.Run{Limits: l}}).checkBatch(b)
		if (err == nil) != (name == "") {
			t.Errorf("one fewer %s: %v", name, err)
		}
	}
}
