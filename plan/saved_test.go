package plan

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// saves returns how many seconds of a step the kept tensors of r save.
func (r *Run) saves() (sum float64) {
	for _, o := range r.saveOptions() {
		sum += o.saves[r.Spec.Keep.Of(o.block)]
	}
	return sum
}

// TestWhatIsKeptIsWorthMost: no combination of levels that fits, below KeepInputs if activations spill, saves more time than the chosen one
// plus one more level of one block. No block's level can be raised further within the memory.
func TestWhatIsKeptIsWorthMost(t *testing.T) {
	testkit.NotShort(t)
	rnd := rand.New(rand.NewSource(3))
	const levels = int(layers.KeepInputs) + 1
	mixed, best, tried := 0, 0, 0
	for range 60 {
		q := request()
		blocks := 2 + rnd.Intn(3)
		q.Config = config(blocks, false)
		q.Rows, q.RowTokens, q.MicroBatchTokens, q.GradDType = 1+rnd.Intn(4), 100+rnd.Intn(900), 1024, "fp32"
		if rnd.Intn(2) == 0 {
			q.Config.SlidingWindow, q.Config.Sliding = 64, make([]bool, blocks)
			for b := range blocks {
				q.Config.Sliding[b] = rnd.Intn(2) == 0
			}
		}
		if q.Unified = rnd.Intn(3) == 0; !q.Unified && rnd.Intn(3) == 0 {
			q.Devices, q.Order = 2, schedule.Lanes
		}
		q.Depths.ActivationSlots = 3 + rnd.Intn(20)
		q.HeadShards = 1 // else it follows from the budget
		q.Recompute = "full"
		least := resolve(t, q)
		q.Recompute = "none"
		most := resolve(t, q)
		q.Recompute = "auto"
		part := func(a, b int64) int64 { return a + int64(rnd.Float64()*1.02*float64(b-a)) }
		if a, b := least.Table(), most.Table(); q.Unified {
			q.HostMemory = part(a.Host+a.AllDevices, b.Host+b.AllDevices)
		} else {
			q.DeviceMemory = part(a.Device, b.Device)
		}
		r := resolve(t, q)
		testkit.NoError(t, r.fits(q))
		tried++
		if slices.Min(r.Spec.Keep) != slices.Max(r.Spec.Keep) {
			mixed++
		}
		top, step := 0.0, 0.0
		combinations := 1
		for range blocks {
			combinations *= levels
		}
		for i := range combinations {
			other := *r
			other.Spec.Keep = nil
			changed := 0
			for b := range blocks {
				level := layers.Keep(i % levels)
				i /= levels
				other.Spec.Keep = append(other.Spec.Keep, level)
				if level != r.Spec.Keep[b] {
					changed++
				}
			}
			if slices.Max(other.Spec.Keep) > r.highest(q) || other.fits(q) != nil {
				continue
			}
			top = max(top, other.saves())
			if changed == 1 && other.saves() > r.saves() {
				t.Errorf("%v is kept, and there is memory for %v", r.Spec.Keep, other.Spec.Keep)
			}
		}
		for _, o := range r.saveOptions() {
			step = max(step, o.saves[layers.KeepInputs])
		}
		if r.saves() < top-step {
			t.Errorf("%v saves %g s, and %g can be saved", r.Spec.Keep, r.saves(), top)
		}
		if r.saves() > top-1e-9*step {
			best++
		}
	}
	if t.Logf("of %d choices %d are the best and %d differ by block", tried, best, mixed); best < tried*3/4 || mixed < tried/3 {
		t.Errorf("of %d choices only %d are the best, %d differ by block", tried, best, mixed)
	}
}

// TestLongAttentionIsKeptFirst: if memory suffices to keep one attention output, the block with
// full attention keeps it, not one with a sliding window.
func TestLongAttentionIsKeptFirst(t *testing.T) {
	q := request()
	q.Config = config(4, false)
	q.Config.SlidingWindow, q.Config.Sliding = 128, []bool{true, true, false, true}
	q.Rows, q.RowTokens, q.ChunkTokens, q.HeadShards, q.Depths.ActivationSlots, q.Recompute = 4, 8192, 4096, 1, 8, "full"
	none := resolve(t, q)
	q.Recompute, q.DeviceMemory = "auto", none.Table().Device+held(none.savedAt(1, layers.KeepAttention))
	for _, less := range []int64{0, 1} {
		q.DeviceMemory -= less
		want := layers.Keeps{0, 0, layers.KeepAttention, 0}
		if less > 0 {
			want[2] = layers.KeepNothing
		}
		if r := resolve(t, q); !slices.Equal(r.Spec.Keep, want) {
			t.Errorf("%d bytes less than for the attention of one block: %v is kept, want %v", less, r.Spec.Keep, want)
		}
	}
	// With room for three attention outputs, the third block's q, k and v would fit instead of two
	// others' outputs. They save more than one output and less than two, so the outputs win.
	q.DeviceMemory = none.Table().Device + 3*held(none.savedAt(1, layers.KeepAttention))
	if r := resolve(t, q); !slices.Equal(r.Spec.Keep, layers.Keeps{1, 1, 1, 0}) {
		t.Errorf("with room for the attention of three blocks %v is kept", r.Spec.Keep)
	}
}

// on7B requests steps of 128 rows of 1024 tokens for a model with some number of Qwen2.5 7B's
// blocks, on a device of gib GiB.
func on7B(t *testing.T, blocks int, gib float64) Request {
	t.Helper()
	c := testkit.Must(model.Preset("qwen2.5-7b"))(t)
	c.NumLayers = blocks
	return Request{Config: c, Act: device.BF16, Rows: 128, RowTokens: 1024, Clip: true, Planes: optim.AdamW{}.Planes, Context: 512 << 20,
		DeviceMemory: int64(gib * (1 << 30))}
}

// TestInputsSpillForMore: layer inputs are spilled to the host if the freed device memory makes a
// step shorter and the host has room. They are never spilled if the request sets the slots, if host
// and device share one memory, or if everything fits. The host has no room for what blocks keep besides.
func TestInputsSpillForMore(t *testing.T) {
	for name, c := range map[string]struct {
		blocks int
		gib    float64
		change func(*Request)
		spills bool
	}{
		"12 blocks, 80 GB":         {12, 79.6, func(q *Request) { q.HostMemory = 72 << 30 }, true},
		"28 blocks, 80 GB":         {28, 79.6, func(q *Request) { q.HostMemory = 142 << 30 }, true},
		"12 blocks, 141 GB":        {12, 140.4, func(q *Request) { q.HostMemory = 72 << 30 }, true},
		"room for everything":      {12, 200, nil, false},
		"slots for all":            {12, 79.6, func(q *Request) { q.Depths.ActivationSlots = 104 }, false},
		"no room on the host":      {12, 79.6, func(q *Request) { q.HostMemory, q.MicroBatchTokens, q.GradDType = 66<<30, 16384, "fp32" }, false},
		"a small part of the step": {28, 79.6, func(q *Request) { q.Config.IntermediateSize *= 2 }, false},
		"copies take longer": {12, 10, func(q *Request) {
			q.Config.HiddenSize, q.Config.IntermediateSize, q.Config.NumHeads, q.Config.VocabSize = 512, 1408, 4, 4096
		}, false},
		"states on disks": {12, 79.6, func(q *Request) { q.StateDir, q.HostMemory = true, 45<<30 }, false},
		"one memory":      {12, 79.6, func(q *Request) { q.Unified = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := on7B(t, c.blocks, c.gib)
			if c.change != nil {
				c.change(&q)
			}
			r := resolve(t, q)
			if over := beyond(r, q); over != "" || (r.SpillBytes() > 0) != c.spills || q.StateDir != (r.StateOnDisk != nil) {
				t.Errorf("%d of %d slots, %v: %s", r.Depths.ActivationSlots, r.allActivations(), r.Spec.Keep, over)
			}
			if least := 2*r.Limits.MicroBatches + minActSlots; r.Depths.ActivationSlots < least {
				t.Errorf("%d slots, at least %d are for the layer at work", r.Depths.ActivationSlots, least)
			}
			q.Depths.ActivationSlots = r.allActivations()
			still := resolve(t, q)
			if t.Logf("%v with %d slots; %v with %d", r.Spec.Keep, r.Depths.ActivationSlots, still.Spec.Keep, still.Depths.ActivationSlots); still.SpillBytes() > 0 {
				t.Error("with a slot for every activation some spill")
			}
			if c.spills != (r.stepSeconds(r.saveOptions()) < (1-spillWorth)*still.stepSeconds(still.saveOptions())) {
				t.Errorf("a step takes about %g s, and %g s where nothing spills", r.stepSeconds(r.saveOptions()), still.stepSeconds(still.saveOptions()))
			}
		})
	}
}

// TestEveryDeviceKeepsForItself: of two devices, the blocks on the one with more memory keep more
// tensors. Both plans fit.
func TestEveryDeviceKeepsForItself(t *testing.T) {
	q := on7B(t, 12, 40)
	q.Devices, q.Order, q.LaneMemory = 2, schedule.Lanes, []int64{40 << 30, 120 << 30}
	r := resolve(t, q)
	var kept [2]int64
	for lane, has := range q.LaneMemory {
		if takes := r.Table().devices[lane]; takes > has || has-takes > 13<<30 && lane == 0 {
			t.Errorf("device %d takes %d of %d bytes", lane, takes, has)
		}
		kept[lane] = r.On(lane).savedBytes()
	}
	on1 := 0
	for l, lane := range r.Lane {
		if r.keeps(l) && lane == 1 {
			on1++
			if level := r.Spec.Keep.Of(r.Layouts[l].Block); level != layers.KeepAll {
				t.Errorf("layer %d on the large device keeps %s", l, level)
			}
		}
	}
	for _, row := range r.Table().Rows {
		if row.Where == "device 1" && row.Purpose == "saved for backward" && row.Detail != "all" {
			t.Errorf("on device 1 is kept: %s", row.Detail)
		}
	}
	if on1 == 0 || kept[0] == 0 || kept[0] >= kept[1] {
		t.Errorf("kept are %d bytes", kept)
	}
}

// TestKeptByLayer: KeptByLayer names a level for every layer; layers of experts keep only their
// input.
func TestKeptByLayer(t *testing.T) {
	q := request()
	q.Config = config(3, false)
	c := q.Config
	c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep, c.MLPOnlyLayers = 8, 2, 32, 1, []int{1}
	r := resolve(t, q)
	if got, want := fmt.Sprint(r.KeptByLayer()), "[nothing inputs nothing inputs inputs nothing nothing]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r.Spec.Keep = layers.Keeps{layers.KeepQKV, layers.KeepNothing, layers.KeepAttention}
	if got, want := fmt.Sprint(r.KeptByLayer()), "[nothing qkv nothing nothing attention nothing nothing]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestBoundCountsWhatIsComputedAgain: the backward's FLOPs include what each block recomputes,
// which depends on the block's level and its attention window.
func TestBoundCountsWhatIsComputedAgain(t *testing.T) {
	q := request()
	q.Config = config(4, false)
	q.Config.SlidingWindow, q.Config.Sliding = 128, []bool{true, true, false, false}
	r := resolve(t, q)
	tokens := int64(r.Limits.Tokens)
	for _, keep := range []layers.Keeps{nil, {0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}} {
		r.Spec.Keep = keep
		want := int64(0)
		for block := range 4 {
			products, attention := r.Spec.BlockRecomputes(block, keep.Of(block), tokens, int64(q.Rows)*q.Config.BlockPairs(block, q.RowTokens))
			want += products + attention
		}
		if forward, backward := r.flops(); !near(backward-2*forward, float64(want), 1e-9) {
			t.Errorf("%v: %g FLOPs are computed again, want %d", keep, backward-2*forward, want)
		}
	}
}

// TestInputsOfProductsAreKeptLast: a block keeps the inputs of its products where memory is left after every block keeps
// all, and no block does with a byte less. In every preset, blocks that would spare no bytes keep nothing more for it.
func TestInputsOfProductsAreKeptLast(t *testing.T) {
	q := on7B(t, 3, 0)
	q.GradDType, q.HeadShards, q.Depths.ActivationSlots = "fp32", 1, 40
	q.Recompute = "full"
	r := resolve(t, q)
	r.Spec.Keep = layers.KeepIn(3, layers.KeepAll)
	all, one := r.Table().Device, held(r.savedAt(1, layers.KeepInputs))-held(r.savedAt(1, layers.KeepAll))
	if token := one / int64(r.Limits.Tokens); token < 2*2*3584+2*18944+8 || token > 2*2*3584+2*18944+9 {
		t.Errorf("inputs of products take %d bytes a token", token)
	}
	for _, q.Recompute = range []string{"auto", "none"} {
		for less, want := range []string{"inputs in 1 of 3 blocks, all in 2", "all"} {
			q.DeviceMemory = all + one - int64(less)
			if r := resolve(t, q); r.Spec.Keep.String() != want {
				t.Errorf("recompute: %s keeps %s in %d bytes, want %s", q.Recompute, r.Spec.Keep, q.DeviceMemory, want)
			}
		}
	}
	for _, name := range model.PresetNames() {
		preset := testkit.Must(model.Preset(name))(t)
		spec := layers.Spec{Config: preset, Act: device.BF16}
		for l, layout := range preset.Layouts(true) {
			if kind := layers.KindOf(layout.Kind); layout.Kind.BeginsBlock() {
				more := kind.SavedBytes(spec, layout.Block, layers.KeepInputs, 64) > kind.SavedBytes(spec, layout.Block, layers.KeepAll, 64)
				if spares := spec.PassBytesSpared(layout.Block, layers.KeepInputs); more != (spares > 0) {
					t.Errorf("%s, layer %d: %d bytes are spared, more is kept: %t", name, l, spares, more)
				}
			}
		}
	}
}

// TestLevelsThatSaveNothing: a block passes over a level that saves nothing, and does not rise to one at the top.
func TestLevelsThatSaveNothing(t *testing.T) {
	for top, want := range map[layers.Keep]layers.Keeps{layers.KeepInputs: {layers.KeepInputs, layers.KeepQKV}, layers.KeepAll: {layers.KeepQKV, layers.KeepQKV}} {
		r := Run{Spec: layers.Spec{Keep: layers.KeepIn(2, layers.KeepNothing)}}
		r.upgrade([]saveOption{{bytes: [...]int64{0, 1, 2, 2, 3}, saves: [...]float64{0, 1, 2, 2, 3}},
			{block: 1, bytes: [...]int64{0, 1, 2, 2, 2}, saves: [...]float64{0, 1, 2, 2, 2}}}, room{lanes: []int64{10}, all: 10}, top)
		if !slices.Equal(r.Spec.Keep, want) {
			t.Errorf("%v is kept, want %v", r.Spec.Keep, want)
		}
	}
}

// TestLevelBehindAWeakOne: a block rises past a level that saves little to one that saves much, as blocks with the gated
// delta rule do, before other blocks take the memory.
func TestLevelBehindAWeakOne(t *testing.T) {
	r := Run{Spec: layers.Spec{Keep: layers.KeepIn(2, layers.KeepNothing)}}
	r.upgrade([]saveOption{{bytes: [...]int64{0, 1, 2, 4, 5}, saves: [...]float64{0, 0.1, 4, 6, 6.1}},
		{block: 1, bytes: [...]int64{0, 1, 2, 3, 5}, saves: [...]float64{0, 1, 2, 3, 4}}}, room{lanes: []int64{4}, all: 4}, layers.KeepInputs)
	if want := (layers.Keeps{layers.KeepAll, layers.KeepNothing}); !slices.Equal(r.Spec.Keep, want) {
		t.Errorf("%v is kept, want %v", r.Spec.Keep, want)
	}
}

// longRows requests training of Qwen2.5 7B on a single row of the given length, on a device of gib
// GiB.
func longRows(tokens int, gib int64) Request {
	return Request{Planes: optim.AdamW{}.Planes, Config: qwen(3584, 18944, 28, 28, 4), Rows: 1, RowTokens: tokens, Act: device.BF16, Clip: true, Context: 512 << 20, DeviceMemory: gib << 30}
}

// TestLongRowsFit: long rows train even on a device that cannot hold three hidden states of a row,
// because hidden states move to the host. They stay on the device if everything fits there.
func TestLongRowsFit(t *testing.T) {
	for _, c := range []struct {
		tokens int
		gib    int64
		onHost bool
		heads  int
	}{
		{131072, 24, false, 28}, {131072, 10, true, 28}, {524288, 10, true, 28}, {524288, 24, true, 28}, {1 << 20, 24, true, 28}, {1 << 20, 80, false, 28},
		{524288, 10, true, 32}, {524288, 24, true, 32}, {1 << 20, 80, false, 32},
	} {
		q := longRows(c.tokens, c.gib)
		if c.heads == 32 {
			q.Config = qwen(4096, 14336, 32, 32, 8)
		}
		r := resolve(t, q)
		table := r.Table()
		if r.Spec.OnHost != c.onHost || table.Device > q.DeviceMemory || r.Limits.MicroBatchTokens != c.tokens {
			t.Errorf("%+v: hidden states on the host %t, %d bytes of the device", c, r.Spec.OnHost, table.Device)
		}
		for _, row := range table.Rows {
			if c.onHost && row.Where == "device" && (row.Purpose == "activations" || row.Purpose == "saved for backward") || !c.onHost && row.Purpose == "waiting heads" {
				t.Errorf("%+v: %+v", c, row)
			}
		}
		if c.onHost && (r.SpillBytes() != 0 || r.Depths.ActivationSlots != r.allActivations()) {
			t.Errorf("%+v: %d activation slots", c, r.Depths.ActivationSlots)
		}
	}
}

// TestHiddenStatesStayWhereTheyFit: hidden states move to the host only if a long row does not fit
// otherwise, or if the request says so.
func TestHiddenStatesStayWhereTheyFit(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*Request)
		onHost bool
		want   string // of the error
	}{
		"asked for":                {func(q *Request) { q.HiddenStates, q.DeviceMemory = "host", 0 }, true, ""},
		"asked not to":             {func(q *Request) { q.HiddenStates = "device" }, false, "of device memory"},
		"no budget":                {func(q *Request) { q.DeviceMemory = 0 }, false, ""},
		"short rows":               {func(q *Request) { q.RowTokens, q.DeviceMemory, q.HeadShards = 16384, 3<<30, 3 }, false, "of device memory"},
		"one token more":           {func(q *Request) { q.RowTokens, q.DeviceMemory, q.HeadShards = 16385, 3<<30, 3 }, true, ""},
		"several rows together":    {func(q *Request) { q.Rows, q.MicroBatchTokens = 2, 1<<20 }, false, "of device memory"},
		"several rows one by one":  {func(q *Request) { q.Rows = 2 }, true, ""},
		"unified":                  {func(q *Request) { q.Unified = true }, false, "of device memory"},
		"keeping all":              {func(q *Request) { q.Recompute = "none" }, false, "of device memory"},
		"keeping all on the host":  {func(q *Request) { q.Recompute, q.HiddenStates = "none", "host" }, false, "hidden_states: host is not possible with recompute: none"},
		"experts on the host":      {func(q *Request) { *q = small(); q.HiddenStates = "host" }, true, ""},
		"two devices":              {func(q *Request) { q.Devices, q.Order, q.Rows = 2, schedule.Lanes, 4 }, true, ""},
		"too little on the host":   {func(q *Request) { q.HostMemory = 200 << 30 }, false, "of host memory"},
		"too little on the device": {func(q *Request) { q.DeviceMemory = 6 << 30 }, false, "of device memory"},
		"an evaluation":            {func(q *Request) { q.EvalOnly, q.DeviceMemory = true, 8<<30 }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := longRows(524288, 24)
			c.edit(&q)
			r, err := Resolve(q)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				return
			}
			testkit.NoError(t, err)
			if r.Spec.OnHost != c.onHost {
				t.Errorf("hidden states on the host: %t", r.Spec.OnHost)
			}
		})
	}
}

// TestWhatKeepsHiddenStates: a request for hidden states on the host is refused for models that keep
// more than hidden states between their blocks.
func TestWhatKeepsHiddenStates(t *testing.T) {
	for want, edit := range map[string]func(c *model.Config){
		"with per-layer inputs":         func(c *model.Config) { c.PerLayerSize, c.PerLayerVocab = 8, c.VocabSize },
		"with train_mtp":                func(c *model.Config) { c.Ahead = 1 },
		"or shared keys and values":     func(c *model.Config) { c.SharedKV = 1 },
		"an indexer chooses their keys": func(c *model.Config) { c.MLA = &model.MLA{Indexer: &model.Indexer{TopK: 65535}} },
	} {
		q := longRows(65536, 24)
		c := *q.Config
		edit(&c)
		q.Config, q.HiddenStates = &c, "host"
		if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestHiddenStatesOnTheHostChangeNoSums: moving hidden states to the host changes no value that the
// order of sums depends on.
func TestHiddenStatesOnTheHostChangeNoSums(t *testing.T) {
	q := longRows(65536, 39) // of a whole head, whose chunks are as large as a block's workspace allows
	q.HeadShards = 1
	near := resolve(t, q)
	q.HiddenStates = "host"
	far := resolve(t, q)
	if a, b := near.Spec, far.Spec; a.ChunkTokens != b.ChunkTokens || a.HeadChunk != b.HeadChunk || near.Limits != far.Limits || near.GradBF16 != far.GradBF16 {
		t.Errorf("on the device %+v, on the host %+v", a, b)
	}
}

// TestWhatALongRowNeedsAtLeast: if a long row fits neither with hidden states on the device nor
// with them on the host, the error states the smaller need, which is that with hidden states on the
// host.
func TestWhatALongRowNeedsAtLeast(t *testing.T) {
	var lack *NotFitting
	if _, err := Resolve(longRows(524288, 1)); !errors.As(err, &lack) || lack.Need > 11<<30 {
		t.Errorf("%v", err)
	}
}

// TestHeadsThatWait: with hidden states on the host, attention's q, k, v and output of every token
// lie in host scratch memory, and in training also the output's gradient.
func TestHeadsThatWait(t *testing.T) {
	q := longRows(32768, 0)
	q.HiddenStates = "host"
	const token = 2 * (4608 + 3584)
	if got := resolve(t, q).ScratchBytes(); got != 32768*(token+2*3584) {
		t.Errorf("in training %d bytes", got)
	}
	q.EvalOnly = true
	if got := resolve(t, q).ScratchBytes(); got != 32768*token {
		t.Errorf("in an evaluation %d bytes", got)
	}
}

// TestCrossingsBoundTheTime: with hidden states on the host, launches copy chunks between host and
// device. The bound of a step's time counts these copies.
func TestCrossingsBoundTheTime(t *testing.T) {
	q := longRows(32768, 0)
	slow := Rates{MatMul: 1e18, Host: 1e15, Link: 1e9}
	near := testkit.Must(Time(resolve(t, q), slow))(t)
	q.HiddenStates = "host"
	far := testkit.Must(Time(resolve(t, q), slow))(t)
	// layers.Spec.Crosses gives a block's copies to the device in the forward: two hidden states of
	// 3584 elements a token, qkv of 4608 and attention's output of 3584. An element has two bytes,
	// and there are 28 blocks.
	const token = 2 * 28 * (2*3584 + 4608 + 3584)
	if more := far.Forward - near.Forward; more < 0.9*token*32768/1e9 || more > 1.1*token*32768/1e9 {
		t.Errorf("the forward takes %g s longer", more)
	}
	if far.Backward <= near.Backward {
		t.Errorf("the backward takes %g s, with all on the device %g", far.Backward, near.Backward)
	}
}
