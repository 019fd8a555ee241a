package plan

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/long"
	"mt/layers"
	"mt/model"
	"mt/schedule"
)

// saves is how many seconds of a step are saved by what r keeps.
func (r *Run) saves() (sum float64) {
	for _, o := range r.saveOptions() {
		sum += o.saves[r.Spec.Keep.Of(o.block)]
	}
	return sum
}

// TestWhatIsKeptIsWorthMost: of all choices for the blocks that fit, the one that is made saves the most, or
// less than that by no more than one step of one block; and no further step fits.
func TestWhatIsKeptIsWorthMost(t *testing.T) {
	long.NotShort(t)
	rnd := rand.New(rand.NewSource(3))
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
		if err := r.fits(q); err != nil {
			t.Fatal(err)
		}
		tried++
		if slices.Min(r.Spec.Keep) != slices.Max(r.Spec.Keep) {
			mixed++
		}
		top, step := 0.0, 0.0
		for i := range 1 << (2 * blocks) {
			other := *r
			other.Spec.Keep = nil
			changed := 0
			for b := range blocks {
				level := layers.Keep(i >> (2 * b) & 3)
				other.Spec.Keep = append(other.Spec.Keep, level)
				if level != r.Spec.Keep[b] {
					changed++
				}
			}
			if other.fits(q) != nil {
				continue
			}
			top = max(top, other.saves())
			if changed == 1 && other.saves() > r.saves() {
				t.Errorf("%v is kept, and there is memory for %v", r.Spec.Keep, other.Spec.Keep)
			}
		}
		for _, o := range r.saveOptions() {
			step = max(step, o.saves[layers.KeepAll])
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

// TestLongAttentionIsKeptFirst: where one attention's output has room, it is that of the block that
// attends to whole rows.
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
	// Instead of that of two others its q, k and v would fit, which save more than one and less than two of them.
	q.DeviceMemory = none.Table().Device + 3*held(none.savedAt(1, layers.KeepAttention))
	if r := resolve(t, q); !slices.Equal(r.Spec.Keep, layers.Keeps{1, 1, 1, 0}) {
		t.Errorf("with room for the attention of three blocks %v is kept", r.Spec.Keep)
	}
}

// on7B asks for steps of 128 rows of 1024 tokens of so many blocks of 7B, on a device of so many GiB.
func on7B(t *testing.T, blocks int, gib float64) Request {
	t.Helper()
	c, err := model.Preset("qwen2.5-7b")
	if err != nil {
		t.Fatal(err)
	}
	c.NumLayers = blocks
	return Request{Config: c, Act: device.BF16, Rows: 128, RowTokens: 1024, Clip: true, Planes: optim.AdamW{}.Planes, Context: 512 << 20,
		DeviceMemory: int64(gib * (1 << 30))}
}

// TestInputsSpillForMore: inputs of layers wait on the host where the memory that they leave makes a step
// shorter, and the host has room for them; never where that was not left to the plan, where both sides are one
// memory, or where everything fits.
func TestInputsSpillForMore(t *testing.T) {
	for name, c := range map[string]struct {
		blocks int
		gib    float64
		change func(*Request)
		spills bool
	}{
		"12 blocks, 80 GB":         {12, 79.6, nil, true},
		"28 blocks, 80 GB":         {28, 79.6, nil, true},
		"12 blocks, 141 GB":        {12, 140.4, nil, true},
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
			if over := beyond(r, q); over != "" || (r.SpillBytes() > 0) != c.spills || q.StateDir != (r.Away != nil) {
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
			if c.spills != (r.stepSeconds() < (1-spillWorth)*still.stepSeconds()) {
				t.Errorf("a step takes about %g s, and %g s where nothing spills", r.stepSeconds(), still.stepSeconds())
			}
		})
	}
}

// TestEveryDeviceKeepsForItself: of two devices the one with more memory keeps more, and each has room for it.
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

// TestKeptByLayer: what is kept is said of every layer; experts keep nothing but their input.
func TestKeptByLayer(t *testing.T) {
	q := request()
	q.Config = config(3, false)
	c := q.Config
	c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep, c.MLPOnlyLayers = 8, 2, 32, 1, []int{1}
	r := resolve(t, q)
	if got, want := fmt.Sprint(r.KeptByLayer()), "[nothing all nothing all all nothing nothing]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r.Spec.Keep = layers.Keeps{layers.KeepQKV, layers.KeepNothing, layers.KeepAttention}
	if got, want := fmt.Sprint(r.KeptByLayer()), "[nothing qkv nothing nothing attention nothing nothing]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestBoundCountsWhatIsComputedAgain: the backward's FLOPs are the model's and those that each block, at its
// own level and with its own window, computes again.
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
