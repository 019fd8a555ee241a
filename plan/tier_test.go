package plan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// tiered requests a run that may keep state on disk, with a large host memory budget that tests
// lower.
func tiered(t *testing.T, blocks int, clip bool) Request {
	t.Helper()
	c := &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 4096, HiddenSize: 128, IntermediateSize: 256, NumLayers: blocks,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 32, MaxPositions: 64, RMSNormEps: 1e-5, Rope: model.Rope{Type: "default", Theta: 10000}, InitializerRange: 0.1}
	return Request{Config: c, Act: device.BF16, GradDType: "fp32", Rows: 2, RowTokens: 32, MicroBatchTokens: 64, Clip: clip, Planes: optim.AdamW{}.Planes, StateDir: true,
		HostMemory: 1 << 40, DeviceMemory: 1 << 30}
}

// TestExtentBytesOfARun: a Run that only has layouts and planes reports the same sizes of state on
// disk as one from Resolve.
func TestExtentBytesOfARun(t *testing.T) {
	want := resolve(t, tiered(t, 2, true))
	run := &Run{Layouts: want.Layouts, Planes: want.Planes}
	for l := range want.Layouts {
		if got := run.ExtentBytes(l); got == 0 || got != want.ExtentBytes(l) {
			t.Errorf("layer %d: %d bytes, want %d", l, got, want.ExtentBytes(l))
		}
	}
}

// TestStatesGoToDisksAsMemoryAsks: the less host memory a run has, the more layers have their state
// on disk. The plan fits, no state is on disk needlessly, and small states go first.
func TestStatesGoToDisksAsMemoryAsks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, clip := range []bool{true, false} {
		q := tiered(t, 12, clip)
		all := testkit.Must(Resolve(q))(t)
		if all.StateOnDisk != nil || all.Table().Disk != 0 {
			t.Fatalf("with room for everything %d states are away", count(all.StateOnDisk))
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
			n := count(p.StateOnDisk)
			if table.Host > budget || n == 0 || n < before-4 {
				t.Fatalf("clip %t: %d of %d bytes, %d states away, %d with more memory", clip, table.Host, budget, n, before)
			}
			if states, tiles := p.DiskBytes(); table.Disk != states+p.GradDiskBytes() || states <= 0 || tiles > 0 {
				t.Fatalf("%d bytes on disks in the table, %d of the states, %d of tiles", table.Disk, states, tiles)
			}
			if p.GradOnDisk != nil { // TestGradientsGoToDisksAsMemoryAsks
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

// TestWeightsGoToDisksAsMemoryAsks: if moving all state to disk does not suffice, as few tiles as
// possible move too, spread evenly over the model. The plan fits and counts every buffer.
func TestWeightsGoToDisksAsMemoryAsks(t *testing.T) {
	testkit.NotShort(t)
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
			p := testkit.Must(Resolve(q))(t)
			table, n := p.Table(), count(p.WeightsOnDisk)
			need := table.Host
			if unified {
				need += table.AllDevices
			}
			if need > q.HostMemory || n < before-8 || n == 0 {
				t.Errorf("unified %t: %d of %d bytes, %d tiles away, %d with more memory", unified, need, q.HostMemory, n, before)
			}
			one := p.ParamBytes(slices.Index(p.WeightsOnDisk, true))
			if p.StateSlotBytes() != one+p.ExtentBytes(1) || p.ParamBufferBytes() != one || n > 1 && q.HostMemory-need > 2*one {
				t.Errorf("unified %t: %d tiles of %d bytes are away, %d bytes are left, slots have %d, buffers %d", unified, n, one, q.HostMemory-need, p.StateSlotBytes(), p.ParamBufferBytes())
			}
			if i := slices.IndexFunc(table.Rows, func(r Row) bool { return r.Purpose == "param buffers" }); i < 0 || table.Rows[i].Bytes != 3*one {
				t.Errorf("unified %t: 3 weight slots have buffers as in row %d of %v", unified, i, table.Rows)
			}
			if p.WeightsOnDisk[0] || p.WeightsOnDisk[p.Head()] {
				t.Errorf("away are the tiles of %v", p.WeightsOnDisk)
			}
			for i, onDisk := range p.WeightsOnDisk[1:p.Head()] { // spread
				if first := count(p.WeightsOnDisk[1 : 2+i]); onDisk && 2 < n && n < 60 && (first > (i+1)*n/64+2 || first < (i+1)*n/64-2) {
					t.Errorf("%d of the first %d blocks are away, of %d: %v", first, i+1, n, p.WeightsOnDisk)
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

// TestSpansOfExperts: ParamSpan reads each expert of a layer separately, in whole chunks that cover
// the expert with little excess and fit in a param buffer.
func TestSpansOfExperts(t *testing.T) {
	q := tiered(t, 8, false)
	c := *q.Config
	c.Arch, c.ModelType, c.QKNorm, c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep = "Qwen3MoeForCausalLM", "qwen3_moe", true, 16, 2, 200, 1
	q.Config = &c
	p := testkit.Must(Resolve(q))(t)
	p.ParamChunk, p.WeightsOnDisk = 4096, make([]bool, len(p.Layouts))
	for l := range p.WeightsOnDisk {
		p.WeightsOnDisk[l] = p.ableToLeave(l)
	}
	experts, inside := 0, 0
	for _, x := range layers.Tiles(p.Layouts, p.Spec) {
		if !p.weightsOnDisk(x.Layer) {
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

// lacks returns the memory need that the error of a plan that does not fit states.
func lacks(t *testing.T, err error) int64 {
	t.Helper()
	var lack *NotFitting
	if !errors.As(err, &lack) {
		t.Fatalf("%v", err)
	}
	return lack.Need
}

// tileOf returns the size of a block's tile in bytes.
func tileOf(t *testing.T, q Request) int64 {
	t.Helper()
	q.HostMemory = 1 << 40
	p := testkit.Must(Resolve(q))(t)
	return p.Layouts[1].TileBytes
}

// TestStateSlots: a run with state on disk has the requested number of state slots.
func TestStateSlots(t *testing.T) {
	q := tiered(t, 12, false)
	all := testkit.Must(Resolve(q))(t)
	q.HostMemory = all.Table().Host - 8*all.ExtentBytes(1)
	for _, asked := range []int{0, 1, 2, 3} {
		q.Depths.StateSlots = asked
		p := testkit.Must(Resolve(q))(t)
		want := asked
		if asked == 0 {
			want = autoStateSlots
		}
		if p.Depths.StateSlots != want || !slices.Contains(p.StateOnDisk, true) {
			t.Errorf("state_slots %d: %d are planned", asked, p.Depths.StateSlots)
		}
	}
	q.Depths.StateSlots = -1
	if _, err := Resolve(q); err == nil {
		t.Error("-1 state slots are planned")
	}
}

// TestStatesAreSpread: the layers with state on disk are spread evenly. With about half of the
// states on disk, never more than two neighbours are.
func TestStatesAreSpread(t *testing.T) {
	q := tiered(t, 16, false)
	all := testkit.Must(Resolve(q))(t)
	q.HostMemory, q.Depths.StateSlots = all.Table().Host-7*all.ExtentBytes(1), 1
	p := testkit.Must(Resolve(q))(t)
	run, longest := 0, 0
	for _, onDisk := range p.StateOnDisk {
		if run++; !onDisk {
			run = 0
		}
		longest = max(longest, run)
	}
	if n := count(p.StateOnDisk); n < 8 || n > 10 || longest > 2 {
		t.Errorf("away are %v: %d in all, %d of them in a row", p.StateOnDisk, n, longest)
	}
}

// TestStatesGoToDisksWhereMemoryIsOne: on a unified device, device memory counts in the host's
// budget too when states are moved to disk.
func TestStatesGoToDisksWhereMemoryIsOne(t *testing.T) {
	q := tiered(t, 12, false)
	q.Unified, q.DeviceMemory, q.Recompute = true, 0, "full"
	q.Depths = Depths{StateSlots: 1, GradBuffers: 1, GradSlabs: 1, ActivationSlots: 40, WeightSlots: 1, BatchesAhead: 1}
	all := testkit.Must(Resolve(q))(t)
	table := all.Table()
	q.HostMemory = table.Host + table.AllDevices - 5*all.ExtentBytes(1)
	p := testkit.Must(Resolve(q))(t)
	if table := p.Table(); table.Host+table.AllDevices > q.HostMemory || count(p.StateOnDisk) == 0 {
		t.Errorf("%d bytes with %d states away, %d there are", table.Host+table.AllDevices, count(p.StateOnDisk), q.HostMemory)
	}
}

// TestWordsOfStates: stateWords names each kind of data on disk once, lower halves first. The bytes
// on disk match the names: two for each element's lower half, and four for each moment or average.
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
			all := testkit.Must(Resolve(q))(t)
			q.HostMemory, q.Depths.StateSlots = all.Table().Host-4*all.ExtentBytes(1), 1
			p := testkit.Must(Resolve(q))(t)
			var want int64
			for l, onDisk := range p.StateOnDisk {
				if n := p.Layouts[l].Elems; onDisk {
					want += optim.Pages(c.lo*n) + c.planes*optim.Pages(4*n)
				}
			}
			rows := p.Table().Rows
			i := slices.IndexFunc(rows, func(r Row) bool { return r.Where == "disk" && r.Purpose == "state" })
			if detail := fmt.Sprintf("%s of %d of 14 layers", c.want, count(p.StateOnDisk)); i < 0 || rows[i].Detail != detail || rows[i].Bytes != want || want == 0 {
				t.Errorf("row %d of %v is not of %d bytes: %s", i, rows, want, detail)
			}
		})
	}
}

// TestLowerHalvesComeFirst: the list of data on disk names lower halves first, even if the first
// layer on disk has none, because only its vectors are trained.
func TestLowerHalvesComeFirst(t *testing.T) {
	q := tiered(t, 12, false)
	testkit.NoError(t, q.Config.SetFreeze(model.Freeze{Names: []string{`embed_tokens`, `layers\.0\..*proj`}}))
	p := testkit.Must(Resolve(q))(t)
	p.StateOnDisk = []bool{1: true, 2: true, 13: false}
	if lo, got := optim.LoBytes(p.Layouts[1], p.Share(1)), p.stateWords(); lo != 0 || got != "lower halves and moments" {
		t.Errorf("states are %s, the first with %d bytes of lower halves", got, lo)
	}
}

// TestPackedBytes: with Compress, moments and weights on disk shrink by their measured ratio and
// take core seconds. Lower halves and codes of 8-bit optimizers do not shrink. Without Compress
// nothing changes.
func TestPackedBytes(t *testing.T) {
	q := tiered(t, 4, false)
	r := testkit.Must(Resolve(q))(t)
	r.StateOnDisk, r.WeightsOnDisk = []bool{false, true, true, true, true, false}, []bool{false, false, true, false, false, false}
	for l := range r.Layouts {
		if got := r.PackedStaged(l); got != (Packed{Bytes: r.StagedBytes(l)}) {
			t.Errorf("layer %d without compression: %+v of %d bytes", l, got, r.StagedBytes(l))
		}
	}
	r.Compress = true
	lo, tile := float64(optim.Pages(optim.LoBytes(r.Layouts[2], r.Share(2)))), float64(r.ParamBytes(2))
	moments := float64(r.ExtentBytes(2)) - lo
	got, without := r.PackedStaged(2), r.PackedStaged(1)
	if want := lo + packedF32.left*moments + packedBF16.left*tile; math.Abs(float64(got.Bytes)-want) > 4 || tile == 0 || lo == 0 {
		t.Errorf("%d bytes, want %.0f", got.Bytes, want)
	}
	if want := lo/packedNoise.pack + moments/packedF32.pack + tile/packedBF16.pack; math.Abs(got.Pack/want-1) > 1e-9 {
		t.Errorf("packed in %g s, want %g", got.Pack, want)
	}
	if want := lo/packedNoise.unpack + moments/packedF32.unpack + tile/packedBF16.unpack; math.Abs(got.Unpack/want-1) > 1e-9 {
		t.Errorf("unpacked in %g s, want %g", got.Unpack, want)
	}
	if diff := got.Bytes - without.Bytes; math.Abs(float64(diff)-packedBF16.left*tile) > 4 {
		t.Errorf("the tile moves %d bytes of %.0f", diff, tile)
	}
	q.Planes = optim.Quantised{By: optim.AdamW{}, Bits: 8}.Planes
	coded := testkit.Must(Resolve(q))(t)
	coded.StateOnDisk, coded.Compress = r.StateOnDisk, true
	packed := coded.PackedStaged(2)
	if float64(packed.Bytes) < 0.95*float64(coded.StagedBytes(2)) {
		t.Errorf("codes: %d bytes of %d", packed.Bytes, coded.StagedBytes(2))
	}
	if codes := float64(coded.StagedBytes(2)) - lo; packed.Pack < 0.9*codes/packedCodes.pack {
		t.Errorf("codes are packed in %g s", packed.Pack)
	}
}

// TestPackingTakesMemory: the plan counts the buffers for compressing state and, if weights are on
// disk, also those for weights.
func TestPackingTakesMemory(t *testing.T) {
	testkit.NotShort(t)
	q := tiered(t, 192, false) // whose tiles are larger than what packing them takes
	q.Depths.StateSlots, q.Depths.WeightSlots, q.ParamDir = 2, 3, true
	q.HostMemory = 1
	_, err := Resolve(q)
	least := lacks(t, err)
	q.Compress = true
	_, err = Resolve(q)
	if more, want := lacks(t, err)-least, 2*int64(packers)*(1<<20+coderBytes); more != want {
		t.Errorf("the least memory is %d bytes more with compression, want %d", more, want)
	}
	all := q
	all.HostMemory = 1 << 40
	r, err := Resolve(all)
	testkit.NoError(t, err)
	if r.StateOnDisk != nil || slices.ContainsFunc(r.Table().Rows, func(r Row) bool { return r.Purpose == "compression" }) {
		t.Error("with room for everything something is compressed")
	}
	full, most := r.Table().Host, least+2*int64(packers)*(1<<20+coderBytes)
	for _, budget := range []int64{full - 1, (full + most) / 2, most} {
		q.HostMemory = budget
		p, err := Resolve(q)
		if err != nil {
			t.Errorf("with %d bytes: %v", budget, err)
			continue
		}
		files := int64(1)
		if p.WeightsOnDisk != nil {
			files = 2
		}
		i := slices.IndexFunc(p.Table().Rows, func(r Row) bool { return r.Purpose == "compression" })
		if i < 0 || p.Table().Rows[i].Bytes != files*int64(packers)*(1<<20+coderBytes) || p.Table().Host > budget {
			t.Errorf("with %d bytes the run takes %d, and compression is row %d of %v", budget, p.Table().Host, i, p.Table().Rows)
		}
	}
}

// rowsOf returns the table's rows for a purpose on a host or device.
func rowsOf(t Table, where, purpose string) (out []Row) {
	for _, row := range t.Rows {
		if row.Where == where && row.Purpose == purpose {
			out = append(out, row)
		}
	}
	return out
}

// TestGradientsGoToDisksAsMemoryAsks: if moving all state to disk does not suffice, as few
// gradients of blocks as possible move too, spread over the model, those of the first blocks last.
// The plan fits and counts every slab, slot and buffer. Tiles move only if moving all gradients
// does not suffice.
func TestGradientsGoToDisksAsMemoryAsks(t *testing.T) {
	testkit.NotShort(t)
	for _, unified := range []bool{false, true} {
		q := tiered(t, 64, true)
		q.Unified, q.Depths = unified, Depths{StateSlots: 2, GradSlabs: 3, WeightSlots: 3, GradBuffers: 2, ActivationSlots: 80, BatchesAhead: 1}
		q.Recompute = "full"
		if unified {
			q.DeviceMemory = 0
		}
		states := q
		states.Ranks, states.Config = 0, q.Config
		all, err := Resolve(q)
		testkit.NoError(t, err)
		grad := all.GradElems(1) * all.GradBytes()
		q.HostMemory = 1
		_, err = Resolve(q)
		least := lacks(t, err) // with all gradients of blocks on disks
		withTiles := q
		withTiles.ParamDir = true
		_, err = Resolve(withTiles)
		if n := lacks(t, err); n > least-32*optim.Pages(tileOf(t, q)) {
			t.Fatalf("unified %t: %d bytes with tiles on disks, %d without", unified, n, least)
		}
		before := 0
		for k := range int64(8) {
			q.HostMemory = least + (7-k)*7*grad
			p := testkit.Must(Resolve(q))(t)
			table, n := p.Table(), count(p.GradOnDisk)
			need := table.Host
			if unified {
				need += table.AllDevices
			}
			one := optim.Pages(grad)
			switch {
			case need > q.HostMemory || n <= before && k > 0 || n == 0 || count(p.StateOnDisk) != 64:
				t.Errorf("unified %t: %d of %d bytes, %d gradients away, %d with more memory, and %d states", unified, need, q.HostMemory, n, before, count(p.StateOnDisk))
			case q.HostMemory-need > grad:
				t.Errorf("unified %t: %d gradients are away, and %d bytes of %d are left", unified, n, q.HostMemory-need, q.HostMemory)
			case p.StateSlotBytes() != p.ExtentBytes(1)+one || p.GradDiskBytes() != int64(n)*one:
				t.Errorf("slots have %d bytes, gradients %d on disks", p.StateSlotBytes(), p.GradDiskBytes())
			case p.GradOnDisk[0] || p.GradOnDisk[p.Head()] || !p.GradOnDisk[p.Head()-1] || p.GradOnDisk[1] && n < 64:
				t.Errorf("%d gradients are away: %v", n, p.GradOnDisk)
			}
			slabs := p.SlabBytes()
			if len(slabs) != 66+3 || slices.Max(slabs[66:]) != one || p.OwnSlabs() != 66 || p.SlabLane(1)+p.SlabLane(66) != 0 {
				t.Errorf("%d slabs, %d of layers' own, the last have %v", len(slabs), p.OwnSlabs(), slabs[66:])
			}
			for l, onDisk := range p.GradOnDisk {
				if want := p.GradElems(l) * 4; (slabs[l] == 0) != onDisk || !onDisk && slabs[l] != want || onDisk != p.gradOnDisk(l) {
					t.Errorf("layer %d, its gradient away %t, has a slab of %d bytes", l, onDisk, slabs[l])
				}
				if (p.GradBinding(l) == InPlace) != (unified && !onDisk) {
					t.Errorf("layer %d, its gradient away %t, is summed as %d", l, onDisk, p.GradBinding(l))
				}
				if first := count(p.GradOnDisk[1 : 1+max(l, 1)]); 0 < l && l < 65 && 2 < n && n < 60 && (first > l*n/64+2 || first < l*n/64-2) {
					t.Errorf("%d of the first %d blocks are away, of %d: %v", first, l, n, p.GradOnDisk)
					break
				}
			}
			if got := p.BufferBytes(); unified && got != 4*all.GradElems(1) || !unified && got != all.BufferBytes() {
				t.Errorf("unified %t: a gradient buffer has %d bytes", unified, got)
			}
			disk, host := rowsOf(table, "disk", "gradients"), rowsOf(table, "host", "gradient slabs")
			if len(disk) != 1 || len(host) != 2 || host[1].Bytes != 3*one || !strings.Contains(disk[0].Detail, "which wait for the norm") {
				t.Errorf("rows %v and %v", disk, host)
			}
			if slots := rowsOf(table, "host", "state slots"); len(slots) != 1 || !strings.HasSuffix(slots[0].Detail, ", with their gradients") {
				t.Errorf("rows %v", slots)
			}
			if states, tiles := p.DiskBytes(); table.Disk != states+tiles+int64(n)*one || tiles != 0 {
				t.Errorf("%d bytes on disks", table.Disk)
			}
			withTiles.HostMemory = q.HostMemory
			if w, err := Resolve(withTiles); err != nil || w.WeightsOnDisk != nil || !slices.Equal(w.GradOnDisk, p.GradOnDisk) {
				t.Errorf("unified %t: with a place for tiles %d of them are away, %v", unified, count(w.WeightsOnDisk), err)
			}
			before = n
		}
		if before < 60 {
			t.Errorf("with least memory %d gradients are away", before)
		}
		withTiles.HostMemory = least - grad
		if w, err := Resolve(withTiles); err != nil || count(w.GradOnDisk) != 64 || count(w.WeightsOnDisk) == 0 {
			t.Errorf("unified %t: with less memory %d gradients and %d tiles are away: %v", unified, count(w.GradOnDisk), count(w.WeightsOnDisk), err)
		}
	}
}

// TestGradientsStayInMemory: gradients stay in memory without clipping, because they then wait for
// no norm, and with several ranks, which exchange them. They also stay if bf16 gradients fit.
func TestGradientsStayInMemory(t *testing.T) {
	q := tiered(t, 24, true)
	q.HostMemory = 1
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || count(p.GradOnDisk) == 0 {
		t.Fatalf("%d gradients are away: %v", count(p.GradOnDisk), err)
	}
	for name, change := range map[string]func(*Request){
		"no clipping": func(q *Request) { q.Clip = false },
		"ranks":       func(q *Request) { q.Ranks, q.Units, q.HostMemory = 2, optim.AdamW{}.Units, 1 },
		"evaluation":  func(q *Request) { q.EvalOnly = true },
		"nowhere":     func(q *Request) { q.StateDir = false },
	} {
		q := q
		change(&q)
		if p, err := Resolve(q); p != nil && (p.GradOnDisk != nil || p.PoolsSlabs() != p.SlabsAreCredits()) {
			t.Errorf("%s: gradients are away: %v", name, err)
		}
	}
	q.GradDType = "auto"
	q.HostMemory += 12 * (p.GradElems(1) * 2)
	auto, err := Resolve(q)
	if err != nil || !auto.GradBF16 || auto.GradOnDisk != nil {
		t.Errorf("gradients of type %s are away: %v, %v", auto.gradType(), auto.GradOnDisk, err)
	}
	q.GradDType = "fp32"
	if p, err := Resolve(q); err != nil || p.GradOnDisk == nil {
		t.Errorf("none are away of fp32: %v", err)
	}
}

// TestSmallModelsKeepTheirGradients: gradients on disk pass through pooled slabs. If the pool takes
// more memory than moving the gradients saves, gradients stay and tiles go to disk.
func TestSmallModelsKeepTheirGradients(t *testing.T) {
	q := tiered(t, 4, true)
	c := *q.Config
	c.VocabSize = 64
	q.Config, q.Depths = &c, Depths{GradSlabs: 4, StateSlots: 1, WeightSlots: 1, ActivationSlots: 40}
	q.ParamDir, q.HostMemory = true, 1
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || p.GradOnDisk != nil || count(p.WeightsOnDisk) != 4 {
		t.Errorf("%d gradients and %d tiles are away: %v", count(p.GradOnDisk), count(p.WeightsOnDisk), err)
	}
}

// TestLeastSlabs: gradients on their way to disk pass through pooled slabs. With clipping one such
// slab suffices, even with tied embeddings; without clipping those need two.
func TestLeastSlabs(t *testing.T) {
	q := tiered(t, 16, true)
	c := *q.Config
	c.TieEmbeddings = true
	q.Config, q.Depths.GradSlabs, q.HostMemory, q.Act = &c, 1, 1, device.F32
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || p.Depths.GradSlabs != 1 || p.GradOnDisk == nil || len(p.SlabBytes()) != 18+1 {
		t.Errorf("%+v, %v", p, err)
	}
	q.Clip = false
	if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), "grad_slabs: 1 is too few") {
		t.Error(err)
	}
}

// TestSlabsOfGradientsOnDisks: if gradients wait on disk, the pool has the requested number of
// slabs. Without a request it has the automatic number, if memory suffices.
func TestSlabsOfGradientsOnDisks(t *testing.T) {
	q := tiered(t, 32, true)
	for _, asked := range []int{0, 1, 2} {
		q.Depths.GradSlabs, q.HostMemory = asked, 1
		_, err := Resolve(q)
		q.HostMemory = lacks(t, err)
		all, err := Resolve(q)
		testkit.NoError(t, err)
		q.HostMemory += 4 * all.GradElems(1) * 4
		want := asked
		if asked == 0 {
			want = autoGradSlabs
		}
		if p, err := Resolve(q); err != nil || p.GradOnDisk == nil || p.Depths.GradSlabs != want {
			t.Errorf("asked for %d: %+v, %v", asked, p.Depths, err)
		}
	}
}

// TestSlabsOfLanes: SlabLane assigns a layer's own slab to the layer's lane, and gives every lane
// its own pooled slabs.
func TestSlabsOfLanes(t *testing.T) {
	q := tiered(t, 32, true)
	q.Devices, q.Order, q.Depths.GradSlabs, q.HostMemory = 2, schedule.Lanes, 2, 1
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || p.GradOnDisk == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	var lanes []int
	for i := range p.SlabBytes() {
		lanes = append(lanes, p.SlabLane(i))
	}
	if want := slices.Concat(p.Lane, []int{0, 0, 1, 1}); !slices.Equal(lanes, want) {
		t.Errorf("slabs are of lanes %v, want %v", lanes, want)
	}
}

// played returns the peak disk usage of a run with a known number of saves. It simulates the run
// save by save.
func played(w Writes) int64 {
	kept := slices.Clone(w.Kept)
	var now, most int64
	saves := w.Saves
	if w.Checkpoint == 0 {
		saves = 0
	}
	for i := range saves {
		limit := w.Limit
		if limit == 1 && i == saves-1 {
			limit = 2
		}
		kept = append(kept, w.Checkpoint)
		now += w.Checkpoint
		most = max(most, now)
		for limit > 0 && len(kept) > limit {
			now, kept = now-kept[0], kept[1:]
		}
	}
	return w.Log + max(most, now+w.Average+w.Model)
}

// TestDiskAtMost: Writes.AtMost equals the peak of a simulated run for random runs.
func TestDiskAtMost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		w := Writes{Checkpoint: r.Int64N(3) * 10, Saves: r.IntN(8), Limit: r.IntN(5), Model: r.Int64N(30), Average: r.Int64N(2) * 7, Log: r.Int64N(3)}
		for range r.IntN(6) {
			w.Kept = append(w.Kept, r.Int64N(40))
		}
		if got, want := w.AtMost(), played(w); got != want {
			t.Fatalf("%+v: %d, want %d", w, got, want)
		}
	}
}

func TestDiskAtMostOfLongRuns(t *testing.T) {
	for _, tc := range []struct {
		w    Writes
		want int64
	}{
		{Writes{Checkpoint: 100, Saves: Unknown, Model: 20, Log: 1}, math.MaxInt64},
		{Writes{Checkpoint: 0, Saves: Unknown, Model: 20, Log: 1}, 21},
		{Writes{Checkpoint: 0, Saves: Unknown, Model: 20, Average: 5, Log: 1}, 26},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: 2, Model: 20, Log: 1}, 301},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: 2, Model: 20, Kept: []int64{100, 100}}, 100},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: 1, Model: 120, Kept: []int64{100, 100}}, 120},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: math.MaxInt, Model: 20, Log: 1}, math.MaxInt64},
		{Writes{Checkpoint: math.MaxInt64 / 2, Saves: 3, Model: math.MaxInt64}, math.MaxInt64},
		{Writes{Checkpoint: 1 << 40, Saves: math.MaxInt, Limit: 3, Model: 20}, 4 << 40},
	} {
		if got := tc.w.AtMost(); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.w, got, tc.want)
		}
	}
}
