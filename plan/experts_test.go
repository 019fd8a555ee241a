package plan

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// a3b and b235 return configs with the sizes of Qwen3-30B-A3B and Qwen3-235B-A22B.
func a3b() *model.Config { return withExperts(2048, 768, 48, 32, 4) }

func b235() *model.Config { return withExperts(4096, 1536, 94, 64, 4) }

func withExperts(hidden, ffn, blocks, heads, kv int) *model.Config {
	return &model.Config{Arch: "Qwen3MoeForCausalLM", ModelType: "qwen3_moe", VocabSize: 151936, HiddenSize: hidden, IntermediateSize: 3 * hidden,
		NumLayers: blocks, NumHeads: heads, NumKVHeads: kv, HeadDim: 128, MaxPositions: 40960, RMSNormEps: 1e-6, QKNorm: true,
		NumExperts: 128, NumExpertsPerTok: 8, MoEIntermediateSize: ffn, NormTopKProb: true, DecoderSparseStep: 1,
		Rope: model.Rope{Type: "default", Theta: 1e6}}
}

// small requests a run of three blocks: the first and the last have experts, the middle one has
// not.
func small() Request {
	q := request()
	q.Config = config(3, false)
	q.Config.NumExperts, q.Config.NumExpertsPerTok, q.Config.MoEIntermediateSize = 16, 2, 192
	q.Config.DecoderSparseStep, q.Config.MLPOnlyLayers = 1, []int{1}
	return q
}

// TestSizesWithExperts: a weight slot and a gradient buffer hold one expert or block, while a slab
// holds the gradient of a whole layer with experts. The layers with experts share one state for all
// tokens of a step.
func TestSizesWithExperts(t *testing.T) {
	for _, act := range []device.DType{device.F32, device.BF16} {
		q := small()
		q.Config.MoEIntermediateSize = 4096 // an expert is larger than a block
		q.Act, q.HeadShards = act, 8
		r := resolve(t, q)
		moe := r.Layouts[2]
		if moe.Kind != model.MoE || r.Experts != 16 || r.ExpertLayers() != 2 {
			t.Fatalf("layer 2 is %s; %d experts in %d layers", moe.Kind, r.Experts, r.ExpertLayers())
		}
		expert := moe.Part(1)
		if _, slot := r.Slots(schedule.Streamed); slot != expert.SlotBytes || r.BufferElems() != expert.GradElems {
			t.Errorf("%s: slots of %d bytes and gradients of %d elements, an expert has %d and %d", act, slot, r.BufferElems(), expert.SlotBytes, expert.GradElems)
		}
		if r.SlabElems() != moe.GradElems {
			t.Errorf("%s: slabs of %d elements, the layer has %d", act, r.SlabElems(), moe.GradElems)
		}
		if want := r.Spec.MoEBytes(r.Limits.Tokens, true); r.ExpertStateBytes() != want || want == 0 {
			t.Errorf("%s: a state of %d bytes, want %d", act, r.ExpertStateBytes(), want)
		}
		if r.SavedBytes(2) != 0 || r.SavedBytes(1) == 0 || r.SavedBytes(3) == 0 {
			t.Errorf("%s: saved are %d, %d and %d bytes: attention and a block keep, experts do not", act, r.SavedBytes(1), r.SavedBytes(2), r.SavedBytes(3))
		}
	}
	if r := resolve(t, request()); r.Experts != 0 || r.ExpertStateBytes() != 0 || r.RoutingBytes() != 0 || r.ExpertTraffic() != nil {
		t.Errorf("a model without experts: %+v", r)
	}
}

// TestExpertsAheadOrOnDemand: experts are fetched on demand if a step has so few tokens that some
// stay idle. With K of E experts chosen for each of T tokens, E·(1−K/E)^T are expected to be idle;
// the limit is 0.5.
func TestExpertsAheadOrOnDemand(t *testing.T) {
	q := small()
	for rows, want := range map[int]string{1: "on demand", 20: "on demand", 27: "ahead", 1000: "ahead"} {
		q.Rows, q.RowTokens = rows, 1 // 16·0.875^26 = 0.497: 26 tokens are enough
		x := resolve(t, q).ExpertTraffic()
		idle := 16 * math.Pow(0.875, float64(rows))
		if x.Fetched != want || math.Abs(x.Idle-idle) > 1e-12 {
			t.Errorf("%d tokens: %s with %g expected idle, want %s with %g", rows, x.Fetched, x.Idle, want, idle)
		}
		if share := float64(x.ExpectedBytes) / float64(x.AllBytes); math.Abs(share-(1-idle/16)) > 1e-6 {
			t.Errorf("%d tokens: %.4f of all bytes are expected", rows, share)
		}
	}
	q.Rows = 1
	onDemand := resolve(t, q)
	q.Rows = 26
	ahead := resolve(t, q)
	up, _, _ := onDemand.transfers()
	if all, _, _ := ahead.transfers(); !onDemand.OnDemand || ahead.OnDemand || up >= all {
		t.Errorf("on demand %g bytes go up, ahead %g", up, all)
	}
	q.Rows, q.Unified = 1, true
	if x := resolve(t, q).ExpertTraffic(); x.Fetched != "in place" || x.AllBytes != 0 {
		t.Errorf("where nothing is copied: %+v", x)
	}
}

// TestExpertTraffic: a step fetches all experts in the forward and again in the backward. Experts
// of the last layer whose tiles still lie in weight slots are not fetched again.
func TestExpertTraffic(t *testing.T) {
	q := small()
	q.Depths.WeightSlots, q.HeadShards = 5, 1
	r := resolve(t, q)
	one := r.Layouts[2].Part(1).SlotBytes
	if got, want := r.ExpertTraffic().AllBytes, one*(2*2*16-4); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	q.EvalOnly = true
	if got, want := resolve(t, q).ExpertTraffic().AllBytes, one*2*16; got != want {
		t.Errorf("an evaluation: %d bytes, want %d", got, want)
	}
}

// TestSharedExpert: weight slots fit the widest expert, here the shared one. The shared expert is
// always fetched and does not count among those that may be idle.
func TestSharedExpert(t *testing.T) {
	q := small()
	q.Config.SharedSize, q.Config.SharedGate = 8192, true
	q.Rows, q.RowTokens, q.Depths.WeightSlots, q.HeadShards = 1, 1, 5, 8
	r := resolve(t, q)
	moe := r.Layouts[2]
	shared := moe.Part(17)
	if _, slot := r.Slots(schedule.Streamed); slot != shared.SlotBytes || r.BufferElems() != shared.GradElems || moe.Parts() != 18 {
		t.Errorf("slots of %d bytes and gradients of %d elements; the shared expert, of %d parts, has %d and %d", slot, r.BufferElems(), moe.Parts(),
			shared.SlotBytes, shared.GradElems)
	}
	x := r.ExpertTraffic()
	if want := moe.Part(1).SlotBytes * 2 * 2 * 16; x.AllBytes != want || !r.OnDemand {
		t.Errorf("%d bytes of experts, on demand %t; want %d", x.AllBytes, r.OnDemand, want)
	}
	if s := x.String(); !strings.HasPrefix(s, "experts: on demand (16 in each of 2 layers, 2 for each token and one that is shared)") {
		t.Errorf("it is described as %q", s)
	}
	up, again, _ := r.transfers()
	q.Config.SharedSize, q.Config.SharedGate = 0, false
	upOf, againOf, _ := resolve(t, q).transfers()
	least := float64(2 * shared.TileBytes) // of two layers; more is the gate
	for pass, more := range map[string]float64{"forward": up - upOf, "backward": again - againOf} {
		if more < least || more > 1.01*least {
			t.Errorf("%s: the shared expert adds %g bytes to what goes up, want %g", pass, more, least)
		}
	}
}

// TestStepTooLargeForExperts: if a step's tokens do not fit because of the experts' state, the
// error says how many rows would fit. A step of that many rows does fit.
func TestStepTooLargeForExperts(t *testing.T) {
	q := small()
	q.Rows, q.MicroBatchTokens, q.Recompute = 200, 512, "full"
	q.DeviceMemory = resolve(t, q).Table().Device / 3
	q.Depths = Depths{WeightSlots: 1, GradBuffers: 1, ActivationSlots: 3}
	_, err := Resolve(q)
	var lack *NotFitting
	if !errors.As(err, &lack) || lack.Where != "device" {
		t.Fatal(err)
	}
	rows := rowsThatFit(q)
	want := "at most " + strconv.Itoa(rows) + " rows per step"
	if rows < 1 || rows >= 200 || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gradient_accumulation_steps") {
		t.Errorf("%d rows fit; the error says: %v", rows, err)
	}
	u := q
	u.DeviceMemory, u.HostMemory, u.Unified = 0, 0, true
	full := resolve(t, u).Table()
	u.HostMemory = full.Host + full.Device - 1
	if _, err := Resolve(u); err == nil || !strings.Contains(err.Error(), " rows per step") {
		t.Errorf("where both sides are one memory: %v", err)
	}
	for n, fits := range map[int]bool{rows: true, rows + 1: false} {
		q.Rows = n
		if _, err := Resolve(q); (err == nil) != fits {
			t.Errorf("%d rows: %v", n, err)
		}
	}
}

// TestPublishedModelsWithExperts: the plans of published models with experts have the expected
// parameters, depths and sizes.
func TestPublishedModelsWithExperts(t *testing.T) {
	testkit.NotShort(t)
	for _, c := range []struct {
		name        string
		cfg         *model.Config
		rows        int
		gib         int64
		params      float64
		tile, state float64 // MiB, GiB
	}{
		// 30B-A3B has 48 layers of 128 experts of 3·2048·768 parameters each, which are 9 MiB in
		// bf16. A token takes 2048·(2+4+2) bytes of ExpertStateBytes for the normed input, the
		// experts' sum and the gradient, and some 200 for the routing.
		{"30B-A3B", a3b(), 16, 22, 30.5e9, 9, 1.02},
		{"235B-A22B", b235(), 8, 40, 235.1e9, 36, 1.01},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := Request{Planes: optim.AdamW{}.Planes, Config: c.cfg, Rows: c.rows, RowTokens: 4096, Act: device.BF16, Clip: true, Context: 600 << 20, DeviceMemory: c.gib << 30}
			r := resolve(t, q)
			var out bytes.Buffer
			table := r.Table()
			table.Write(&out)
			b := testkit.Must(Time(r, Rates{MatMul: 700e12, Host: 200e9, Link: 50e9}))(t)
			b.Write(&out)
			t.Logf("%s\n%s", r.ExpertTraffic(), out.String())
			if want := 3 + 128/4; r.Depths.WeightSlots != want {
				t.Errorf("%d weight slots, want %d: an expert is small beside attention's work", r.Depths.WeightSlots, want)
			}
			if !near(float64(table.Params), c.params, 0.005) || !near(float64(r.Layouts[2].Part(1).SlotBytes), c.tile*(1<<20), 0.01) {
				t.Errorf("%d parameters, %d bytes an expert", table.Params, r.Layouts[2].Part(1).SlotBytes)
			}
			if !near(float64(r.ExpertStateBytes()), c.state*(1<<30)*float64(c.rows*c.cfg.HiddenSize)/(16*2048), 0.05) || r.OnDemand {
				t.Errorf("a state of %d bytes, on demand %t", r.ExpertStateBytes(), r.OnDemand)
			}
			x := r.ExpertTraffic()
			if all := (2*float64(c.cfg.NumLayers)*128 - 2 - 128/4) * c.tile * (1 << 20); !near(float64(x.AllBytes), all, 0.01) || x.ExpectedBytes != x.AllBytes {
				t.Errorf("%d bytes of experts a step, want %g", x.AllBytes, all)
			}
		})
	}
}
