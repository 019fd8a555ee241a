package plan

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"mt/device"
	"mt/device/op"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

func config(blocks int, tied bool) *model.Config {
	return &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 4096, HiddenSize: 512, IntermediateSize: 1408, NumLayers: blocks,
		NumHeads: 8, NumKVHeads: 4, HeadDim: 64, MaxPositions: 4096, RMSNormEps: 1e-5, TieEmbeddings: tied, Rope: model.Rope{Type: "default", Theta: 10000}}
}

// request returns a training request of 64 rows with all depths and choices automatic, and without
// a memory budget.
func request() Request {
	return Request{Config: config(6, false), Rows: 64, RowTokens: 512, Clip: true, Planes: optim.AdamW{}.Planes}
}

func resolve(t *testing.T, q Request) *Run {
	t.Helper()
	r := testkit.Must(Resolve(q))(t)
	return r
}

// TestAutomaticWithoutBudget: without a memory budget, Resolve chooses the fastest values: blocks
// keep all tensors, gradients are fp32, and depths are the automatic ones.
func TestAutomaticWithoutBudget(t *testing.T) {
	// 64 rows of at most 512 tokens are cut into micro-batches of 16384 tokens. All micro-batches
	// but the last have at least 32 rows, so there are at most two.
	r := resolve(t, request())
	if r.Spec.Keep.String() != "inputs" || r.GradBF16 || r.Limits.MicroBatchTokens != 16384 || r.Limits.MicroBatches != 2 {
		t.Errorf("keep %s, bf16 gradients %t, micro-batches of %d", r.Spec.Keep, r.GradBF16, r.Limits.MicroBatchTokens)
	}
	// Seven layer inputs (of six blocks and the head) for each of two micro-batches need 14
	// activation slots.
	want := Depths{WeightSlots: 3, GradBuffers: 2, GradSlabs: 1, ActivationSlots: 14, BatchesAhead: 2}
	if r.Depths != want {
		t.Errorf("depths %+v, want %+v", r.Depths, want)
	}
	q := request()
	q.Config = config(1, false)
	if r := resolve(t, q); r.Depths.WeightSlots != 1 {
		t.Errorf("%d weight slots for one block", r.Depths.WeightSlots)
	}
	q.Clip = false
	if r := resolve(t, q); r.Depths.GradSlabs != 3 {
		t.Errorf("%d slabs without clipping", r.Depths.GradSlabs)
	}
}

// least returns q with the smallest choices that a run can have. Any budget that admits q with
// automatic values must admit these.
func least(q Request) Request {
	q.GradDType, q.Recompute, q.MicroBatchTokens = "bf16", "full", 1
	if q.Act == device.F32 {
		q.GradDType = "fp32"
	}
	q.Depths = Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 2, ActivationSlots: 3, BatchesAhead: 1}
	return q
}

// beyond adds up the rows of r's table and says which budget of q they exceed; "": none. With one
// shared memory, device rows count on the host too.
func beyond(r *Run, q Request) string {
	sums := map[string]int64{}
	for _, row := range r.Table().Rows {
		sums[row.Where] += row.Bytes
		if q.oneMemory() && row.Where == "device" {
			sums["host"] += row.Bytes
		}
	}
	for where, budget := range map[string]int64{"device": q.DeviceMemory, "host": q.HostMemory} {
		if budget > 0 && sums[where] > budget {
			return fmt.Sprintf("%d bytes of %s memory, %d are there", sums[where], where, budget)
		}
	}
	return ""
}

// TestLackThatRoundsAway: if need and budget look the same when rounded to GiB, the error also says
// how much memory is missing.
func TestLackThatRoundsAway(t *testing.T) {
	err := &NotFitting{Where: "device", Need: 2<<30 + 12<<20, Budget: 2 << 30, Keys: "lower it"}
	if want := "the run needs 2.0 GiB of device memory and 2.0 GiB are available, 12 MiB less: lower it"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	err.Need = 3 << 30
	if want := "the run needs 3.0 GiB of device memory and 2.0 GiB are available: lower it"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	err.Budget, err.By = 1, "ulimit -v is 1 GiB"
	if want := "the run needs 3.0 GiB of device memory and none is available (ulimit -v is 1 GiB): lower it"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestWhatFitsIsFound: under ever lower budgets, Resolve finds a plan that fits as long as the
// smallest possible run fits. Otherwise its error names the memory that lacks.
func TestWhatFitsIsFound(t *testing.T) {
	testkit.NotShort(t)
	ratio := budgetRatio(t, 0.85)
	for _, unified := range []bool{false, true} {
		for _, act := range []device.DType{device.F32, device.BF16} {
			for _, clip := range []bool{false, true} {
				q := request()
				q.Unified, q.Act, q.Clip = unified, act, clip
				full := resolve(t, q).Table()
				small := least(q)
				fitted, refused := 0, 0
				for share := 1.05; share > 0.005; share *= ratio {
					for _, on := range []string{"device", "host"} {
						b := q
						b.DeviceMemory, b.HostMemory = 0, int64(share*float64(full.Host))
						if unified {
							b.HostMemory = int64(share * float64(full.Host+full.Device))
						}
						if on == "device" {
							b.DeviceMemory, b.HostMemory = int64(share*float64(full.Device)), 0
						}
						s := small
						s.DeviceMemory, s.HostMemory = b.DeviceMemory, b.HostMemory
						_, tooSmall := Resolve(s)
						got, err := Resolve(b)
						if tooSmall == nil && err != nil {
							t.Fatalf("unified %t %s clip %t, %.3f of the %s memory: the smallest run fits and the automatic does not: %v", unified, act, clip, share, on, err)
						}
						var nf *NotFitting
						switch {
						case err == nil:
							fitted++
							if over := beyond(got, b); over != "" {
								t.Fatalf("what was chosen does not fit: %s", over)
							}
						case errors.As(err, &nf):
							refused++
							if nf.Where != on || nf.Need <= nf.Budget || !strings.Contains(err.Error(), "or raise "+on+"_memory") {
								t.Fatalf("the %s lacks memory and the error is %+v: %v", on, nf, err)
							}
						default:
							t.Fatal(err)
						}
					}
				}
				if fitted < 5 || refused < 5 {
					t.Errorf("unified %t %s clip %t: %d budgets fitted, %d were refused", unified, act, clip, fitted, refused)
				}
			}
		}
	}
}

// TestNumericsDoNotDependOnDepths: under any budget, values that fix the order of sums are the same
// for all requested depths.
func TestNumericsDoNotDependOnDepths(t *testing.T) {
	testkit.NotShort(t)
	changed := map[string]bool{}
	for _, act := range []device.DType{device.F32, device.BF16} {
		q := request()
		q.Act = act
		full := resolve(t, q).Table()
		for share := 1.0; share > 0.005; share *= 0.85 {
			q.DeviceMemory, q.HostMemory = int64(share*float64(full.Device)), 0
			if int(share*1000)%2 == 0 {
				q.HostMemory = int64((0.5 + share/2) * float64(full.Host))
			}
			want, err := Resolve(q)
			if err != nil {
				continue
			}
			changed[fmt.Sprint(want.Limits.MicroBatchTokens, want.GradBF16)] = true
			for _, d := range []Depths{{WeightSlots: 1}, {WeightSlots: 6}, {GradBuffers: 4}, {ActivationSlots: 3}, {ActivationSlots: 200}, {BatchesAhead: 5}} {
				q.Depths = d
				got, err := Resolve(q)
				if got == nil {
					t.Fatal(err)
				}
				if got.Limits != want.Limits || got.GradBF16 != want.GradBF16 || got.Spec.ChunkTokens != want.Spec.ChunkTokens || got.Spec.HeadChunk != want.Spec.HeadChunk {
					t.Errorf("%.3f: depths %+v: limits %+v bf16 %t, without %+v %t", share, d, got.Limits, got.GradBF16, want.Limits, want.GradBF16)
				}
			}
			q.Depths = Depths{}
		}
	}
	if len(changed) < 3 {
		t.Errorf("budgets hardly change anything: %v", changed)
	}
}

// TestAskedIsKept: Resolve keeps every value that the request sets, or returns an error.
func TestAskedIsKept(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	kept := 0
	for range 500 {
		q := request()
		q.Config = config(1+r.Intn(5), r.Intn(2) == 0)
		q.Rows, q.Clip, q.Unified = 1+r.Intn(20), r.Intn(2) == 0, r.Intn(2) == 0
		q.Depths = Depths{WeightSlots: r.Intn(8), GradBuffers: r.Intn(4), GradSlabs: 2 + r.Intn(4), ActivationSlots: []int{0, 3, 17, 400}[r.Intn(4)], BatchesAhead: r.Intn(4)}
		q.GradDType = []string{"fp32", "bf16"}[r.Intn(2)]
		q.Recompute = []string{"full", "none"}[r.Intn(2)]
		q.MicroBatchTokens, q.ChunkTokens = r.Intn(3)*700, r.Intn(2)*96
		q.DeviceMemory = int64(1+r.Intn(800)) << 20
		got, err := Resolve(q)
		if err != nil {
			continue
		}
		kept++
		check := func(what string, asked, is int) {
			if asked != 0 && asked != is {
				t.Errorf("%s: asked for %d, is %d", what, asked, is)
			}
		}
		check("weight_slots", q.Depths.WeightSlots, got.Depths.WeightSlots)
		check("grad_buffers", q.Depths.GradBuffers, got.Depths.GradBuffers)
		check("grad_slabs", q.Depths.GradSlabs, got.Depths.GradSlabs)
		check("activation_slots", q.Depths.ActivationSlots, got.Depths.ActivationSlots)
		check("batches_ahead", q.Depths.BatchesAhead, got.Depths.BatchesAhead)
		check("chunk_tokens", q.ChunkTokens, got.Spec.ChunkTokens)
		if q.MicroBatchTokens > 0 {
			want := NewLimits(q.Rows, q.RowTokens, q.MicroBatchTokens, q.Config.VocabSize)
			if got.Limits != want {
				t.Errorf("micro-batches of %d: limits %+v", q.MicroBatchTokens, got.Limits)
			}
		}
		if got.GradBF16 != (q.GradDType == "bf16") {
			t.Errorf("asked for %s: bf16 %t", q.GradDType, got.GradBF16)
		}
		for block := range q.Config.Blocks() {
			if none := got.Spec.Keep.Of(block) >= layers.KeepAll; none != (q.Recompute == "none") || !none && got.Spec.Keep.Of(block) > 0 {
				t.Errorf("asked for recompute %s: keep %s", q.Recompute, got.Spec.Keep)
				break
			}
		}
	}
	if kept < 100 || kept == 500 {
		t.Errorf("%d of 500 requests fit: the budgets say nothing", kept)
	}
}

// TestLimitsHold: batches of random rows, cut into micro-batches as package data does, never exceed
// the limits.
func TestLimitsHold(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	tight := 0
	for range 5000 {
		rows, longest, micro := 1+r.Intn(12), 1+r.Intn(20), 1+r.Intn(60)
		l := NewLimits(rows, longest, micro, 1000)
		var batches, inThis, largest int
		for range rows { // as package data groups them
			n := 1 + r.Intn(longest)
			if r.Intn(2) == 0 {
				n = longest
			}
			if inThis > 0 && inThis+n <= micro {
				inThis += n
			} else {
				batches, inThis = batches+1, n
			}
			largest = max(largest, inThis)
		}
		if batches > l.MicroBatches || largest > l.MicroBatchTokens {
			t.Fatalf("%d rows of at most %d in micro-batches of %d: %d of at most %d, limits %+v", rows, longest, micro, batches, largest, l)
		}
		if batches == l.MicroBatches {
			tight++
		}
	}
	if tight < 1000 {
		t.Errorf("the limit on micro-batches was reached in %d of 5000 cases only", tight)
	}
	if l := NewLimits(8, 256, 16384, 1000); l.MicroBatches != 1 || l.MicroBatchTokens != 2048 {
		t.Errorf("one micro-batch holds everything; limits %+v", l)
	}
}

// TestImpossibleRequests: if a requested value is too small or too large, the error names the key
// and the bound.
func TestImpossibleRequests(t *testing.T) {
	for want, change := range map[string]func(*Request){
		"pipeline.weight_slots: -1 is too few: it is at least 1":       func(q *Request) { q.Depths.WeightSlots = -1 },
		"pipeline.activation_slots: 2 is too few: it is at least 3":    func(q *Request) { q.Depths.ActivationSlots = 2 },
		"pipeline.grad_slabs: 1 is too few: it is at least 2":          func(q *Request) { q.Depths.GradSlabs, q.Clip, q.Config = 1, false, config(2, true) },
		"pipeline.grad_buffers: -3 is too few: it is at least 1":       func(q *Request) { q.Depths.GradBuffers = -3 },
		"pipeline.batches_ahead: -1 is too few: it is at least 1":      func(q *Request) { q.Depths.BatchesAhead = -1 },
		"pipeline.micro_batch_tokens: -5 is too few: it is at least 1": func(q *Request) { q.MicroBatchTokens = -5 },
		"a step of 0 rows":              func(q *Request) { q.Rows = 0 },
		"rows of at most 0 tokens":      func(q *Request) { q.RowTokens = 0 },
		"max_grad_norm: 0 with a small": func(q *Request) { q.HostMemory = 1 },
		"the run needs ":                func(q *Request) { q.DeviceMemory = 1 },
	} {
		q := request()
		change(&q)
		if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	q := request()
	q.HostMemory, q.EvalOnly = 1, true
	if _, err := Resolve(q); err == nil || strings.Contains(err.Error(), "grad") {
		t.Errorf("an evaluation that does not fit: %v", err)
	}
}

// TestGradientsOnTheHost: with clipping, every layer has a slab of its own size. Without clipping
// there are GradSlabs slabs, each as large as the largest gradient. An evaluation has none.
func TestGradientsOnTheHost(t *testing.T) {
	q := request()
	r := resolve(t, q)
	// Elements of the gradients: the embedding's rows of all 4096 ids; a block's norms, qkv, o,
	// gate and up, down; the final norm and the head.
	const embed, block, head = 4096 * 512, 2*512 + (8+2*4)*64*512 + 512*512 + 2*1408*512 + 512*1408, 512 + 4096*512
	want := []int64{4 * embed, 4 * block, 4 * block, 4 * block, 4 * block, 4 * block, 4 * block, 4 * head}
	if got := r.SlabBytes(); !reflect.DeepEqual(got, want) {
		t.Errorf("slabs of %v bytes, want %v", got, want)
	}
	q.Clip, q.Depths.GradSlabs, q.GradDType = false, 4, "bf16"
	r = resolve(t, q)
	if got, most := r.SlabBytes(), int64(2*block); !reflect.DeepEqual(got, []int64{most, most, most, most}) {
		t.Errorf("slabs of %v bytes, want 4 of %d", got, most)
	}
	q.EvalOnly = true
	if got := resolve(t, q).SlabBytes(); got != nil {
		t.Errorf("an evaluation has slabs of %v bytes", got)
	}
}

// TestTable: totals are the sums of the rows, and weights and moments take 12 bytes a parameter.
func TestTable(t *testing.T) {
	for _, act := range []device.DType{device.F32, device.BF16} {
		q := request()
		q.Act, q.Unified = act, true
		table := resolve(t, q).Table()
		sums := map[string]int64{}
		perParam := int64(0)
		for _, row := range table.Rows {
			sums[row.Where] += row.Bytes
			switch row.Purpose {
			case "weights", "lo planes", "moments":
				perParam += row.Bytes
			}
		}
		if sums["host"] != table.Host || sums["device"] != table.Device || len(sums) != 2 {
			t.Errorf("sums %v, totals %d and %d", sums, table.Host, table.Device)
		}
		if table.Params != q.Config.Params() {
			t.Errorf("%d parameters, want %d", table.Params, q.Config.Params())
		}
		if ratio := float64(perParam) / float64(table.Params); ratio < 12 || ratio > 12.3 {
			t.Errorf("%s: %.3f bytes a parameter, want 12 and some alignment", act, ratio)
		}
		var out bytes.Buffer
		table.Write(&out)
		for _, want := range []string{"host", "device", "total", "gradient slabs", "activations", "workspace"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the table does not say %q:\n%s", want, out.String())
			}
		}
	}
}

// TestDeviceMemoryDoesNotGrow: device memory depends neither on the number of layers nor, with a
// fixed number of activation slots, on the number of rows in a step.
func TestDeviceMemoryDoesNotGrow(t *testing.T) {
	at := func(blocks, rows int) int64 {
		q := request()
		q.Config, q.Rows = config(blocks, false), rows
		q.Recompute, q.MicroBatchTokens = "full", 1024
		q.Depths = Depths{WeightSlots: 2, GradBuffers: 2, ActivationSlots: 5}
		table := resolve(t, q).Table()
		for _, row := range table.Rows {
			if row.Purpose == "batch" {
				table.Device -= row.Bytes // ids and losses: a few bytes a token
			}
		}
		return table.Device
	}
	want := at(4, 16)
	for _, c := range [][2]int{{8, 16}, {40, 16}, {4, 64}, {4, 256}} {
		if got := at(c[0], c[1]); got != want {
			t.Errorf("%d blocks and %d rows take %d bytes, 4 and 16 take %d", c[0], c[1], got, want)
		}
	}
}

// TestSpillBytes: if slots are few, the host has room for the inputs of all layers but the
// embedding, and in an evaluation for one layer's input. If every activation has a slot, the host
// needs no room.
func TestSpillBytes(t *testing.T) {
	q := request()
	q.MicroBatchTokens = 2048
	q.Depths.ActivationSlots = 3
	hidden := int64(q.Rows*q.RowTokens) * int64(q.Config.HiddenSize) * 4
	if got, want := resolve(t, q).SpillBytes(), 7*hidden; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	all := q
	all.Depths.ActivationSlots = 7 * 22 // of six blocks and the head; all but the last micro-batch hold 1537 tokens at least
	if got := resolve(t, all).SpillBytes(); got != 0 {
		t.Errorf("%d bytes though everything has a slot", got)
	}
	q.EvalOnly = true
	if got := resolve(t, q).SpillBytes(); got != hidden {
		t.Errorf("an evaluation: %d bytes, want %d", got, hidden)
	}
}

// TestSavedBytesHoldEveryCut: however a full batch is cut into micro-batches, the tensors that a
// block keeps fit in SavedBytes. Each tensor of each micro-batch is aligned, which takes extra
// bytes.
func TestSavedBytesHoldEveryCut(t *testing.T) {
	rnd := rand.New(rand.NewSource(5))
	up := func(n int64) int64 { return (n + device.Align - 1) / device.Align * device.Align }
	for i := range 500 {
		q := request()
		q.Recompute = "none"
		if i%2 == 0 { // no tensor ends where the next may begin
			c := q.Config
			c.HiddenSize, c.IntermediateSize, c.NumHeads, c.NumKVHeads, c.HeadDim = 15, 11, 5, 1, 3
		}
		q.Rows, q.RowTokens = 1+rnd.Intn(9), 1+rnd.Intn(400)
		q.MicroBatchTokens = q.RowTokens + rnd.Intn(2*q.RowTokens)
		r := resolve(t, q)
		var need int64
		for left, n := r.Limits.Tokens, 0; left > 0; n++ {
			tokens := min(left, 1+rnd.Intn(r.Limits.MicroBatchTokens))
			if rest := r.Limits.MicroBatches - n - 1; left-tokens > rest*r.Limits.MicroBatchTokens { // what is left has to go into the others
				tokens = left - rest*r.Limits.MicroBatchTokens
			}
			need += up(r.Kind(1).SavedBytes(r.Spec, r.Layouts[1].Block, r.Spec.Keep.Of(r.Layouts[1].Block), tokens))
			left -= tokens
		}
		if got := r.SavedBytes(1); need == 0 || got < need {
			t.Fatalf("limits %+v: %d bytes, and a batch keeps %d", r.Limits, got, need)
		}
	}
}

func TestLimits(t *testing.T) {
	if got, want := NewLimits(6, 100, 250, 5000), (Limits{Tokens: 600, MicroBatches: 3, MicroBatchTokens: 250, Sequences: 600, UniqueIDs: 600}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := NewLimits(6, 100, 250, 50).UniqueIDs; got != 50 {
		t.Errorf("%d different ids in a vocabulary of 50", got)
	}
}

// TestGradsInPlace: gradients accumulate in the slab only if the device is unified, the slab is
// fp32, and clipping gives each layer a slab of its own.
func TestGradsInPlace(t *testing.T) {
	for i := range 8 {
		r := Run{Unified: i&1 != 0, Clip: i&2 != 0, GradBF16: i&4 != 0}
		if got, want := r.GradsInPlace(), i == 3; got != want {
			t.Errorf("unified %t, clipping %t, bf16 %t: in place %t, want %t", r.Unified, r.Clip, r.GradBF16, got, want)
		}
	}
}

// TestPlanesInTheTable: the optimizer's planes have rows of the memory table under their own names,
// and the update's traffic counts them as read and written.
func TestPlanesInTheTable(t *testing.T) {
	lines := func(planes optim.Planes) (out []string, bytes float64) {
		q := request()
		q.Planes = planes
		r := resolve(t, q)
		for _, row := range r.Table().Rows[1:] {
			if row.Where != "host" || row.Purpose == "gradient slabs" {
				break
			}
			out = append(out, fmt.Sprintf("%s, %s: %d", row.Purpose, row.Detail, row.Bytes))
		}
		return out, r.UpdateBytes(1, r.Gradients()[1])
	}
	var all, matrices int64
	for _, l := range resolve(t, request()).Layouts {
		all += optim.Pages(4 * l.Elems)
		if l.Kind == model.Block {
			down := l.Tensor(model.RoleDown)
			matrices += optim.Pages(4 * down.Elems())
		}
	}
	average := func(name string) optim.Plane { return optim.Plane{Name: name, Kind: "averages", Of: "the test"} }
	none, bare := lines(nil)
	adam, both := lines(optim.AdamW{}.Planes)
	more, most := lines(func(p optim.Piece) []optim.Plane {
		out := optim.AdamW{}.Planes(p)
		if p.Param.Role == model.RoleDown {
			out = append(slices.Clip(out), average("a"), average("b"), average("c"))
		}
		return out
	})
	moments := fmt.Sprintf("moments, m and v of AdamW, fp32: %d", 2*all)
	if len(none) != 0 || !slices.Equal(adam, []string{moments}) ||
		!slices.Equal(more, []string{moments, fmt.Sprintf("averages, a, b and c of the test, fp32: %d", 3*matrices)}) {
		t.Errorf("%q\n%q\n%q", none, adam, more)
	}
	block := resolve(t, request()).Layouts[1]
	down := block.Tensor(model.RoleDown)
	if both-bare != float64(16*block.Elems) || most-both != float64(24*down.Elems()) {
		t.Errorf("an update reads and writes %g bytes, with AdamW's planes %g, with three more %g", bare, both, most)
	}
}

// TestOneMemory: if the device shares the host's memory although tiles are copied, one budget
// covers both. Resolve finds a plan within it, and the table has the sum.
func TestOneMemory(t *testing.T) {
	q := request()
	q.OneMemory = true
	full := resolve(t, q)
	table := full.Table()
	if full.Binding() != Copied || !table.OneMemory || table.OnHost() != table.Host+table.AllDevices || table.Device == 0 {
		t.Fatalf("binding %d, %+v", full.Binding(), table)
	}
	var text strings.Builder
	table.Write(&text)
	if want := humanize.IBytes(uint64(table.OnHost())); !regexp.MustCompile(`both +total +` + want + ` +host and device share one memory`).MatchString(text.String()) {
		t.Errorf("no sum of %s in\n%s", want, text.String())
	}
	small := least(q)
	need := resolve(t, small).Table().OnHost()
	for _, budget := range []int64{table.OnHost(), (table.OnHost() + need) / 2, need} {
		q.HostMemory = budget
		if why := beyond(resolve(t, q), q); why != "" {
			t.Errorf("with %d bytes: %s", budget, why)
		}
	}
	small.HostMemory = need - 1
	var lack *NotFitting
	if _, err := Resolve(small); !errors.As(err, &lack) || lack.Where != "host" || lack.Need != need {
		t.Errorf("with a byte less than %d: %v", need, err)
	}
	q.OneMemory, q.HostMemory = false, 0
	if got := resolve(t, q); got.Table().OneMemory || got.Table().OnHost() != got.Table().Host {
		t.Errorf("two memories: %+v", got.Table())
	}
}

// TestWaysOutOfOneMemory: if host and device share one memory and the host's budget is exceeded,
// the error also proposes keys that spare device memory. With separate memories it does not.
func TestWaysOutOfOneMemory(t *testing.T) {
	for _, one := range []bool{true, false} {
		q := request()
		q.Config.VocabSize = 1 << 20
		q.OneMemory, q.Recompute, q.HeadShards, q.Depths.ActivationSlots, q.HostMemory = one, "none", 1, 9, 1<<20
		_, err := Resolve(q)
		var lack *NotFitting
		if !errors.As(err, &lack) || lack.Where != "host" {
			t.Fatalf("one memory %t: %v", one, err)
		}
		for _, way := range []string{"set recompute: full", "set pipeline.head_shards: ", "set pipeline.activation_slots: 3"} {
			if strings.Contains(lack.Keys, way) != one {
				t.Errorf("one memory %t, %q: %s", one, way, lack.Keys)
			}
		}
	}
}

// TestHeadOfOneMemory: if host and device share one memory and a whole head does not fit in it, the
// head is cut into parts.
func TestHeadOfOneMemory(t *testing.T) {
	q := least(request())
	q.Config.VocabSize = 1 << 17
	q.OneMemory, q.HeadShards = true, 1
	q.HostMemory = resolve(t, q).Table().OnHost() - 1
	q.HeadShards = 0
	if n := resolve(t, q).Spec.Shards(); n < 2 {
		t.Errorf("the head is in %d shards", n)
	}
}

// TestBatchOfPairs: a batch of preference pairs also has room for the reference's log-probability
// of each document: 4 bytes a document, and one aligned tensor for each micro-batch. There may be
// as many documents as tokens.
func TestBatchOfPairs(t *testing.T) {
	q := request()
	q.Rows, q.RowTokens, q.MicroBatchTokens = 8, 4096, 8192
	tokens := resolve(t, q)
	q.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}
	pairs := resolve(t, q)
	l := pairs.Limits
	if more := pairs.BatchIntBytes() - tokens.BatchIntBytes(); l.MicroBatches < 4 || l.Sequences != l.Tokens || more != 4*int64(l.Tokens)+int64(l.MicroBatches)*device.Align {
		t.Errorf("%d bytes more for batches of pairs within %+v", more, l)
	}
}

// TestEvaluationsKeepWeightsAlone: an evaluation plans no optimizer planes, even if the request
// names an optimizer.
func TestEvaluationsKeepWeightsAlone(t *testing.T) {
	q := request()
	q.EvalOnly = true
	r := resolve(t, q)
	for _, row := range r.Table().Rows {
		if row.Purpose == "moments" {
			t.Errorf("%+v", row)
		}
	}
	if r.Planes != nil {
		t.Error("an evaluation keeps more than weights")
	}
}

// TestGradientsLieInTheirSlabs: Gradients says in which slab, and where, a layer's update and the
// gradient norm find each tensor's gradient. With tied embeddings the table's gradient is at the
// head's position.
func TestGradientsLieInTheirSlabs(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	tied := 0
	for range 40 {
		layouts, spec := randomModel(r)
		run := &Run{Layouts: layouts, Spec: spec, Clip: true, Limits: Limits{UniqueIDs: 5}}
		slab := func(l int) int64 { return run.SlabBytes()[l] / run.GradBytes() }
		head := run.Head()
		for l, g := range run.Gradients() {
			var own, end int64 // elements of what is measured; where the last range ends
			for _, x := range g.Ranges(5) {
				if x.To < end || x.To+x.Elems > slab(l) {
					t.Fatalf("layer %d: elements %d to %d are measured after %d in a slab of %d", l, x.To, x.To+x.Elems, end, slab(l))
				}
				own, end = own+x.Elems, x.To+x.Elems
			}
			shares := l == 0 && layouts[head].Tied
			switch {
			case l > 0 && (g.In != l || g.From != 0 || g.OfRows(l) || own != elems(layouts[l])):
				t.Errorf("layer %d: %+v, %d elements are measured", l, g, own)
			case l == 0 && (g.Row != int64(spec.Config.HiddenSize) || own != 5*g.Row || g.OfRows(0) == shares):
				t.Errorf("the embedding, shared %t: %+v, %d elements are measured", shares, g, own)
			case shares:
				tied++
				at := layouts[head].Tensor(model.RoleLMHead)
				if g.In != head || g.From != at.Elem || g.Table != at.Elems() || g.From+layouts[0].Elems > slab(head) {
					t.Errorf("a shared table: %+v, the head has it at %d, %d elements", g, at.Elem, at.Elems())
				}
			}
		}
	}
	if tied == 0 {
		t.Error("no table was shared")
	}
}

// elems returns the number of elements of a layer's tensors, without padding.
func elems(l model.Layout) (n int64) {
	for _, t := range l.Tensors {
		n += t.Elems()
	}
	return n
}

// TestFrozenRun: frozen bf16 weights take two bytes a parameter on the host. Frozen layers below
// the lowest trained one have no backward, keep no tensors for it, and their inputs need no
// activation slots.
func TestFrozenRun(t *testing.T) {
	q := tiered(t, 8, true)
	q.StateDir, q.Recompute = false, "none"
	whole := testkit.Must(Resolve(q))(t)
	testkit.NoError(t, q.Config.SetFreeze(model.Freeze{Names: []string{"embed_tokens", `layers\.[0-4]\.`, `layers\.6\.mlp`, `layers\.7\.`}}))
	r := testkit.Must(Resolve(q))(t)
	if model.LowestTrained(r.Layouts) != 6 || r.Spec.NoBackward != 5 {
		t.Errorf("layer %d is the lowest that is trained, %d blocks have no backward", model.LowestTrained(r.Layouts), r.Spec.NoBackward)
	}
	for l := range r.Layouts {
		frozen := l < 6 || l == 8
		if r.Frozen(l) != frozen || (r.FrozenLayers()[l]) != frozen {
			t.Errorf("layer %d is frozen %t", l, r.Frozen(l))
		}
		if frozen && (r.ExtentBytes(l) != 0 || r.GradElems(l) != 0) || (r.SavedBytes(l) == 0) != (l < 6 || l == 9) {
			t.Errorf("layer %d takes %d bytes of state, %d elements of gradient, keeps %d bytes", l, r.ExtentBytes(l), r.GradElems(l), r.SavedBytes(l))
		}
	}
	spec := r.Schedule()
	spec.ActivationSlots = 99
	program := testkit.Must(schedule.New(spec, []int{32, 32}))(t)
	for _, v := range program.Visits {
		if v.Phase == schedule.Backward && v.Layer < 6 {
			t.Errorf("layer %d has a backward", v.Layer)
		}
	}
	if v := spec.Layers[8].Backward[0]; v.Grad() || !v.Uses.Has(schedule.UpdatesGradInPlace) {
		t.Errorf("the backward of a frozen block sums up a gradient: %t", v.Grad())
	}
	backward := spec.Layers[7].Backward[0] // its MLP is frozen, its attention is not
	if !backward.Grad() {
		t.Error("block 6 sums up no gradient")
	}
	if got, want := r.allActivations(), whole.allActivations()-4*r.Limits.MicroBatches; got != want {
		t.Errorf("%d slots for all activations, want %d", got, want)
	}
	was, is := whole.Table(), r.Table()
	frozen := is.Params - q.Config.TrainedParams()
	// A frozen parameter saves its lower half, moments and gradient: 2 + 8 + 4 bytes. The
	// embedding's gradient has only the rows of a batch, so freezing it saves less.
	want := 14*frozen - 4*int64(4096-r.Limits.UniqueIDs)*128
	if saved := was.Host - is.Host; saved < want || saved > want+want/50 {
		t.Errorf("%d parameters are frozen, which saves %d bytes of the host, want %d", frozen, saved, want)
	}
	if forward, backward := r.flops(); backward >= 2*forward {
		t.Errorf("%g FLOPs forward and %g backward", forward, backward)
	}
}
