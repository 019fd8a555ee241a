package plan

import (
	"math"
	"slices"
	"testing"

	"mt/host/optim"
	"mt/internal/long"
)

// TestPackedBytes: with Compress the moments and weights on disks take their share, lower halves and codes what they took, and cores
// work for them; without it nothing changes.
func TestPackedBytes(t *testing.T) {
	q := tiered(t, 4, false)
	r, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	r.Away, r.ParamAway = []bool{false, true, true, true, true, false}, []bool{false, false, true, false, false, false}
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
	coded, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	coded.Away, coded.Compress = r.Away, true
	packed := coded.PackedStaged(2)
	if float64(packed.Bytes) < 0.95*float64(coded.StagedBytes(2)) {
		t.Errorf("codes: %d bytes of %d", packed.Bytes, coded.StagedBytes(2))
	}
	if codes := float64(coded.StagedBytes(2)) - lo; packed.Pack < 0.9*codes/packedCodes.pack {
		t.Errorf("codes are packed in %g s", packed.Pack)
	}
}

// TestPackingTakesMemory: what compression takes is planned, for states and, where weights are on disks, for these too.
func TestPackingTakesMemory(t *testing.T) {
	long.NotShort(t)
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
	if err != nil {
		t.Fatal(err)
	}
	if r.Away != nil || slices.ContainsFunc(r.Table().Rows, func(r Row) bool { return r.Purpose == "compression" }) {
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
		if p.ParamAway != nil {
			files = 2
		}
		i := slices.IndexFunc(p.Table().Rows, func(r Row) bool { return r.Purpose == "compression" })
		if i < 0 || p.Table().Rows[i].Bytes != files*int64(packers)*(1<<20+coderBytes) || p.Table().Host > budget {
			t.Errorf("with %d bytes the run takes %d, and compression is row %d of %v", budget, p.Table().Host, i, p.Table().Rows)
		}
	}
}
