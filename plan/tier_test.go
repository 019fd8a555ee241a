package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/long"
	"mt/layers"
	"mt/model"
)

// tiered is a run whose states may be on disks, with a budget of the host's memory.
func tiered(t *testing.T, blocks int, clip bool) Request {
	t.Helper()
	c := &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 4096, HiddenSize: 128, IntermediateSize: 256, NumLayers: blocks,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 32, MaxPositions: 64, RMSNormEps: 1e-5, Rope: model.Rope{Type: "default", Theta: 10000}, InitializerRange: 0.1}
	return Request{Config: c, Act: device.BF16, GradDType: "fp32", Rows: 2, RowTokens: 32, MicroBatchTokens: 64, Clip: clip, Planes: optim.AdamW{}.Planes, StateDir: true,
		HostMemory: 1 << 40, DeviceMemory: 1 << 30}
}

// TestExtentBytesOfARun: a run that is made from layouts and planes alone tells the sizes that a resolved one tells.
func TestExtentBytesOfARun(t *testing.T) {
	want := resolve(t, tiered(t, 2, true))
	run := &Run{Layouts: want.Layouts, Planes: want.Planes}
	for l := range want.Layouts {
		if got := run.ExtentBytes(l); got == 0 || got != want.ExtentBytes(l) {
			t.Errorf("layer %d: %d bytes, want %d", l, got, want.ExtentBytes(l))
		}
	}
}

// TestStatesGoToDisksAsMemoryAsks: with less and less host memory more and more states are on disks; what
// is planned fits, no state more than needed is away, and small ones go first.
func TestStatesGoToDisksAsMemoryAsks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, clip := range []bool{true, false} {
		q := tiered(t, 12, clip)
		all, err := Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		if all.Away != nil || all.Table().Disk != 0 {
			t.Fatalf("with room for everything %d states are away", count(all.Away))
		}
		need, before, least := all.Table().Host, 0, int64(0)
		for budget := need - 1; ; budget -= 1 + r.Int64N(need/40) {
			q.HostMemory = budget
			p, err := Resolve(q)
			if err != nil {
				least = budget
				break
			}
			table := p.Table()
			n := count(p.Away)
			if table.Host > budget || n == 0 || n < before-4 {
				t.Fatalf("clip %t: %d of %d bytes, %d states away, %d with more memory", clip, table.Host, budget, n, before)
			}
			if states, tiles := p.DiskBytes(); table.Disk != states+p.GradDiskBytes() || states <= 0 || tiles > 0 {
				t.Fatalf("%d bytes on disks in the table, %d of the states, %d of tiles", table.Disk, states, tiles)
			}
			if p.GradAway != nil { // TestGradientsGoToDisksAsMemoryAsks
				if n != 12 {
					t.Fatalf("gradients are away and the states of %d layers, not those of all blocks alone", n)
				}
				before = n
				continue
			}
			if one := p.ExtentBytes(1); n > 1 && n <= 12 && (p.StateSlotBytes() != one || budget-table.Host > 2*one) { // other layers than with one state less may be away, and be larger
				t.Errorf("clip %t: %d states away leave %d bytes of %d unused, a state of a block has %d", clip, n, budget-table.Host, budget, one)
			}
			before = n
		}
		if before < 12 {
			t.Errorf("clip %t: only %d states are away where nothing fits any more, with %d bytes of %d", clip, before, least, need)
		}
	}
}

// TestWeightsGoToDisksAsMemoryAsks: where states on disks do not do, tiles of blocks go there too, spread over the model and as few
// as do; what is planned fits and counts every buffer.
func TestWeightsGoToDisksAsMemoryAsks(t *testing.T) {
	long.NotShort(t)
	for _, unified := range []bool{false, true} {
		q := tiered(t, 64, false)
		q.Unified, q.Depths.StateSlots, q.Depths.WeightSlots = unified, 2, 3
		if unified {
			q.DeviceMemory = 0
		}
		q.HostMemory = 1
		_, err := Resolve(q)
		states := lacks(t, err) // with all states on disks
		q.ParamDir = true
		_, err = Resolve(q)
		least := lacks(t, err)
		if least > states-32*optim.Pages(tileOf(t, q)) {
			t.Fatalf("unified %t: %d bytes with weights on disks, %d without", unified, least, states)
		}
		before := 0
		for k := range int64(10) {
			q.HostMemory = states - 1 - k*(states-least)/12
			p, err := Resolve(q)
			if err != nil {
				t.Fatal(err)
			}
			table, n := p.Table(), count(p.ParamAway)
			need := table.Host
			if unified {
				need += table.AllDevices
			}
			if need > q.HostMemory || n < before-8 || n == 0 {
				t.Errorf("unified %t: %d of %d bytes, %d tiles away, %d with more memory", unified, need, q.HostMemory, n, before)
			}
			one := p.ParamBytes(slices.Index(p.ParamAway, true))
			if p.StateSlotBytes() != one+p.ExtentBytes(1) || p.ParamBufferBytes() != one || n > 1 && q.HostMemory-need > 2*one {
				t.Errorf("unified %t: %d tiles of %d bytes are away, %d bytes are left, slots have %d, buffers %d", unified, n, one, q.HostMemory-need, p.StateSlotBytes(), p.ParamBufferBytes())
			}
			if i := slices.IndexFunc(table.Rows, func(r Row) bool { return r.Purpose == "param buffers" }); i < 0 || table.Rows[i].Bytes != 3*one {
				t.Errorf("unified %t: 3 weight slots have buffers as in row %d of %v", unified, i, table.Rows)
			}
			if p.ParamAway[0] || p.ParamAway[p.Head()] {
				t.Errorf("away are the tiles of %v", p.ParamAway)
			}
			for i, away := range p.ParamAway[1:p.Head()] { // spread
				if first := count(p.ParamAway[1 : 2+i]); away && 2 < n && n < 60 && (first > (i+1)*n/64+2 || first < (i+1)*n/64-2) {
					t.Errorf("%d of the first %d blocks are away, of %d: %v", first, i+1, n, p.ParamAway)
					break
				}
			}
			states, tiles := p.DiskBytes()
			if table.Disk != states+tiles || tiles != int64(n)*one {
				t.Errorf("%d bytes on disks, %d of states and %d of %d tiles", table.Disk, states, tiles, n)
			}
			before = n
		}
	}
}

// TestSpansOfExperts: of a layer with experts each is read by itself, in whole chunks that have all of it and little else, and
// that fit into a param buffer.
func TestSpansOfExperts(t *testing.T) {
	q := tiered(t, 8, false)
	c := *q.Config
	c.Arch, c.ModelType, c.QKNorm, c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep = "Qwen3MoeForCausalLM", "qwen3_moe", true, 16, 2, 200, 1
	q.Config = &c
	p, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	p.ParamChunk, p.ParamAway = 4096, make([]bool, len(p.Layouts))
	for l := range p.ParamAway {
		p.ParamAway[l] = p.ableToLeave(l)
	}
	experts, inside := 0, 0
	for _, x := range layers.Tiles(p.Layouts, p.Spec) {
		if !p.paramAway(x.Layer) {
			continue
		}
		from, bytes := p.ParamSpan(x)
		at := x.Copies[0]
		switch {
		case len(x.Copies) != 1 || at.Layer != x.Layer:
			t.Fatalf("tile %d of layer %d is copied from %v", x.Part, x.Layer, x.Copies)
		case from > at.From || from+bytes < at.From+at.Bytes || from%4096 != 0 || (from+bytes)%4096 != 0:
			t.Errorf("bytes %d to %d are read for bytes %d to %d", from, from+bytes, at.From, at.From+at.Bytes)
		case at.From-from >= 4096 || from+bytes-at.From-at.Bytes >= 4096:
			t.Errorf("bytes %d to %d are read for bytes %d to %d, and fewer would do", from, from+bytes, at.From, at.From+at.Bytes)
		case bytes > p.ParamBufferBytes() || from+bytes > p.ParamBytes(x.Layer):
			t.Errorf("%d bytes are read from byte %d on, of %d, into a buffer of %d", bytes, from, p.ParamBytes(x.Layer), p.ParamBufferBytes())
		}
		if x.Part > 0 {
			experts++
		}
		if from > 0 && bytes == p.ParamBufferBytes() {
			inside++
		}
	}
	if experts < 16 || inside == 0 {
		t.Errorf("%d experts are on disks, %d spans take all of a buffer", experts, inside)
	}
}

// lacks is what the error of a plan that does not fit says that it needs.
func lacks(t *testing.T, err error) int64 {
	t.Helper()
	var lack *NotFitting
	if !errors.As(err, &lack) {
		t.Fatalf("%v", err)
	}
	return lack.Need
}

// tileOf is the size of a block's tile.
func tileOf(t *testing.T, q Request) int64 {
	t.Helper()
	q.HostMemory = 1 << 40
	p, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	return p.Layouts[1].TileBytes
}

// TestStateSlots: as many state slots as asked for.
func TestStateSlots(t *testing.T) {
	q := tiered(t, 12, false)
	all, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	q.HostMemory = all.Table().Host - 8*all.ExtentBytes(1)
	for _, asked := range []int{0, 1, 2, 3} {
		q.Depths.StateSlots = asked
		p, err := Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		want := asked
		if asked == 0 {
			want = autoStateSlots
		}
		if p.Depths.StateSlots != want || !slices.Contains(p.Away, true) {
			t.Errorf("state_slots %d: %d are planned", asked, p.Depths.StateSlots)
		}
	}
	q.Depths.StateSlots = -1
	if _, err := Resolve(q); err == nil {
		t.Error("-1 state slots are planned")
	}
}

// TestStatesAreSpread: where half of the blocks' states are away, every other one is.
func TestStatesAreSpread(t *testing.T) {
	q := tiered(t, 16, false)
	all, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	q.HostMemory, q.Depths.StateSlots = all.Table().Host-7*all.ExtentBytes(1), 1
	p, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	run, longest := 0, 0
	for _, away := range p.Away {
		if run++; !away {
			run = 0
		}
		longest = max(longest, run)
	}
	if n := count(p.Away); n < 8 || n > 10 || longest > 2 {
		t.Errorf("away are %v: %d in all, %d of them in a row", p.Away, n, longest)
	}
}

// TestStatesGoToDisksWhereMemoryIsOne: on a unified device what the device takes counts too.
func TestStatesGoToDisksWhereMemoryIsOne(t *testing.T) {
	q := tiered(t, 12, false)
	q.Unified, q.DeviceMemory, q.Recompute = true, 0, "full"
	q.Depths = Depths{StateSlots: 1, GradBuffers: 1, GradSlabs: 1, ActivationSlots: 40, WeightSlots: 1, BatchesAhead: 1}
	all, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	table := all.Table()
	q.HostMemory = table.Host + table.AllDevices - 5*all.ExtentBytes(1)
	p, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	if table := p.Table(); table.Host+table.AllDevices > q.HostMemory || count(p.Away) == 0 {
		t.Errorf("%d bytes with %d states away, %d there are", table.Host+table.AllDevices, count(p.Away), q.HostMemory)
	}
}

// TestWordsOfStates: a plan says what the states are that are on disks, each kind once and lower halves first, and they have as many bytes
// as what it says: of an element two for the lower half and four for each moment or average.
func TestWordsOfStates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Request)
		want   string
		lo     int64 // bytes of an element's lower half
		planes int64
	}{
		"bf16":         {func(*Request) {}, "lower halves and moments", 2, 2},
		"fp32":         {func(q *Request) { q.Act = device.F32 }, "moments", 0, 2},
		"bf16 masters": {func(q *Request) { q.BF16Master = true }, "moments", 0, 2},
		"no momentum":  {func(q *Request) { q.Planes = optim.SGD{}.Planes }, "lower halves", 2, 0},
		"averages": {func(q *Request) { q.Planes = optim.Average{Decay: 0.9}.With(optim.AdamW{}.Planes) },
			"lower halves, moments and averages", 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := tiered(t, 12, false)
			c.change(&q)
			all, err := Resolve(q)
			if err != nil {
				t.Fatal(err)
			}
			q.HostMemory, q.Depths.StateSlots = all.Table().Host-4*all.ExtentBytes(1), 1
			p, err := Resolve(q)
			if err != nil {
				t.Fatal(err)
			}
			var want int64
			for l, away := range p.Away {
				if n := p.Layouts[l].Elems; away {
					want += optim.Pages(c.lo*n) + c.planes*optim.Pages(4*n)
				}
			}
			rows := p.Table().Rows
			i := slices.IndexFunc(rows, func(r Row) bool { return r.Where == "disk" && r.Purpose == "state" })
			if detail := fmt.Sprintf("%s of %d of 14 layers", c.want, count(p.Away)); i < 0 || rows[i].Detail != detail || rows[i].Bytes != want || want == 0 {
				t.Errorf("row %d of %v is not of %d bytes: %s", i, rows, want, detail)
			}
		})
	}
}

// TestLowerHalvesComeFirst: where the first layer on disks has none, since only its vectors are trained, they still do.
func TestLowerHalvesComeFirst(t *testing.T) {
	q := tiered(t, 12, false)
	if err := q.Config.SetFreeze(model.Freeze{Names: []string{`embed_tokens`, `layers\.0\..*proj`}}); err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	p.Away = []bool{1: true, 2: true, 13: false}
	if lo, got := optim.LoBytes(p.Layouts[1], p.Share(1)), p.stateWords(); lo != 0 || got != "lower halves and moments" {
		t.Errorf("states are %s, the first with %d bytes of lower halves", got, lo)
	}
}
