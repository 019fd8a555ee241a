package plan

import (
	"slices"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/long"
	"mt/schedule"
)

// rowsOf are the rows of a table for a purpose.
func rowsOf(t Table, where, purpose string) (out []Row) {
	for _, row := range t.Rows {
		if row.Where == where && row.Purpose == purpose {
			out = append(out, row)
		}
	}
	return out
}

// TestGradientsGoToDisksAsMemoryAsks: where all states on disks do not do, gradients of blocks wait there too, spread over the model,
// as few as do, and the first blocks' last; what is planned fits and counts every slab, slot and buffer. Only where all of them do not
// do either, tiles follow.
func TestGradientsGoToDisksAsMemoryAsks(t *testing.T) {
	long.NotShort(t)
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
		if err != nil {
			t.Fatal(err)
		}
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
			p, err := Resolve(q)
			if err != nil {
				t.Fatal(err)
			}
			table, n := p.Table(), count(p.GradAway)
			need := table.Host
			if unified {
				need += table.AllDevices
			}
			one := optim.Pages(grad)
			switch {
			case need > q.HostMemory || n <= before && k > 0 || n == 0 || count(p.Away) != 64:
				t.Errorf("unified %t: %d of %d bytes, %d gradients away, %d with more memory, and %d states", unified, need, q.HostMemory, n, before, count(p.Away))
			case q.HostMemory-need > grad:
				t.Errorf("unified %t: %d gradients are away, and %d bytes of %d are left", unified, n, q.HostMemory-need, q.HostMemory)
			case p.StateSlotBytes() != p.ExtentBytes(1)+one || p.GradDiskBytes() != int64(n)*one:
				t.Errorf("slots have %d bytes, gradients %d on disks", p.StateSlotBytes(), p.GradDiskBytes())
			case p.GradAway[0] || p.GradAway[p.Head()] || !p.GradAway[p.Head()-1] || p.GradAway[1] && n < 64:
				t.Errorf("%d gradients are away: %v", n, p.GradAway)
			}
			slabs := p.SlabBytes()
			if len(slabs) != 66+3 || slices.Max(slabs[66:]) != one || p.OwnSlabs() != 66 || p.SlabLane(1)+p.SlabLane(66) != 0 {
				t.Errorf("%d slabs, %d of layers' own, the last have %v", len(slabs), p.OwnSlabs(), slabs[66:])
			}
			for l, away := range p.GradAway {
				if want := p.GradElems(l) * 4; (slabs[l] == 0) != away || !away && slabs[l] != want || away != p.gradAway(l) {
					t.Errorf("layer %d, its gradient away %t, has a slab of %d bytes", l, away, slabs[l])
				}
				if (p.GradBinding(l) == InPlace) != (unified && !away) {
					t.Errorf("layer %d, its gradient away %t, is summed as %d", l, away, p.GradBinding(l))
				}
				if first := count(p.GradAway[1 : 1+max(l, 1)]); 0 < l && l < 65 && 2 < n && n < 60 && (first > l*n/64+2 || first < l*n/64-2) {
					t.Errorf("%d of the first %d blocks are away, of %d: %v", first, l, n, p.GradAway)
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
			if w, err := Resolve(withTiles); err != nil || w.ParamAway != nil || !slices.Equal(w.GradAway, p.GradAway) {
				t.Errorf("unified %t: with a place for tiles %d of them are away, %v", unified, count(w.ParamAway), err)
			}
			before = n
		}
		if before < 60 {
			t.Errorf("with least memory %d gradients are away", before)
		}
		withTiles.HostMemory = least - grad
		if w, err := Resolve(withTiles); err != nil || count(w.GradAway) != 64 || count(w.ParamAway) == 0 {
			t.Errorf("unified %t: with less memory %d gradients and %d tiles are away: %v", unified, count(w.GradAway), count(w.ParamAway), err)
		}
	}
}

// TestGradientsStayInMemory: where they do not wait for the norm, where several ranks exchange them, and in place of bf16
// gradients, which have room.
func TestGradientsStayInMemory(t *testing.T) {
	q := tiered(t, 24, true)
	q.HostMemory = 1
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || count(p.GradAway) == 0 {
		t.Fatalf("%d gradients are away: %v", count(p.GradAway), err)
	}
	for name, change := range map[string]func(*Request){
		"no clipping": func(q *Request) { q.Clip = false },
		"ranks":       func(q *Request) { q.Ranks, q.Units, q.HostMemory = 2, optim.AdamW{}.Units, 1 },
		"evaluation":  func(q *Request) { q.EvalOnly = true },
		"nowhere":     func(q *Request) { q.StateDir = false },
	} {
		q := q
		change(&q)
		if p, err := Resolve(q); p != nil && (p.GradAway != nil || p.PoolsSlabs() != p.SlabsAreCredits()) {
			t.Errorf("%s: gradients are away: %v", name, err)
		}
	}
	q.GradDType = "auto"
	q.HostMemory += 12 * (p.GradElems(1) * 2)
	auto, err := Resolve(q)
	if err != nil || !auto.GradBF16 || auto.GradAway != nil {
		t.Errorf("gradients of type %s are away: %v, %v", auto.gradType(), auto.GradAway, err)
	}
	q.GradDType = "fp32"
	if p, err := Resolve(q); err != nil || p.GradAway == nil {
		t.Errorf("none are away of fp32: %v", err)
	}
}

// TestSmallModelsKeepTheirGradients: where slabs to take turns in take more than they save, tiles go without them.
func TestSmallModelsKeepTheirGradients(t *testing.T) {
	q := tiered(t, 4, true)
	c := *q.Config
	c.VocabSize = 64
	q.Config, q.Depths = &c, Depths{GradSlabs: 4, StateSlots: 1, WeightSlots: 1, ActivationSlots: 40}
	q.ParamDir, q.HostMemory = true, 1
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || p.GradAway != nil || count(p.ParamAway) != 4 {
		t.Errorf("%d gradients and %d tiles are away: %v", count(p.GradAway), count(p.ParamAway), err)
	}
}

// TestLeastSlabs: with clipping one slab does that gradients on their way to disks take turns in, also with tied embeddings.
func TestLeastSlabs(t *testing.T) {
	q := tiered(t, 16, true)
	c := *q.Config
	c.TieEmbeddings = true
	q.Config, q.Depths.GradSlabs, q.HostMemory, q.Act = &c, 1, 1, device.F32
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || p.Depths.GradSlabs != 1 || p.GradAway == nil || len(p.SlabBytes()) != 18+1 {
		t.Errorf("%+v, %v", p, err)
	}
	q.Clip = false
	if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), "grad_slabs: 1 is too few") {
		t.Error(err)
	}
}

// TestSlabsOfGradientsOnDisks: as many slabs to take turns in as without clipping, where memory has room for them, and as asked.
func TestSlabsOfGradientsOnDisks(t *testing.T) {
	q := tiered(t, 32, true)
	for _, asked := range []int{0, 1, 2} {
		q.Depths.GradSlabs, q.HostMemory = asked, 1
		_, err := Resolve(q)
		q.HostMemory = lacks(t, err)
		all, err := Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		q.HostMemory += 4 * all.GradElems(1) * 4
		want := asked
		if asked == 0 {
			want = autoGradSlabs
		}
		if p, err := Resolve(q); err != nil || p.GradAway == nil || p.Depths.GradSlabs != want {
			t.Errorf("asked for %d: %+v, %v", asked, p.Depths, err)
		}
	}
}

// TestSlabsOfLanes: a slab of a layer's own is its lane's, and every lane has slabs that its layers take turns in.
func TestSlabsOfLanes(t *testing.T) {
	q := tiered(t, 32, true)
	q.Devices, q.Order, q.Depths.GradSlabs, q.HostMemory = 2, schedule.Lanes, 2, 1
	_, err := Resolve(q)
	q.HostMemory = lacks(t, err)
	p, err := Resolve(q)
	if err != nil || p.GradAway == nil {
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
