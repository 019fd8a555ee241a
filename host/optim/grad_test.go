package optim

import (
	"testing"

	"mt/model"
)

func TestMisuseOfAddRowsPanics(t *testing.T) {
	dst := gradFrom(make([]float32, 12), false)
	one := gradFrom(make([]float32, 4), false)
	tests := map[string]func(){
		"id outside":      func() { AddRows(nil, dst, []int32{3}, one, 4) },
		"ids that fall":   func() { AddRows(nil, dst, []int32{1, 0}, dst, 4) },
		"too few rows":    func() { AddRows(nil, dst, []int32{0, 1}, one, 4) },
		"broken rows":     func() { AddRows(nil, dst, []int32{0}, one, 5) },
		"without columns": func() { AddRows(nil, dst, nil, one, 0) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) { mustPanic(t, f) })
	}
}

// TestSplitJoinIsExact: Join restores every fp32 value from the halves that Split makes. The test
// tries every upper half with lower halves around rounding boundaries.
func TestSplitJoinIsExact(t *testing.T) {
	for high := range uint32(1 << 16) {
		for _, low := range []uint32{0, 1, 2, 0x3fff, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xc000, 0xfffe, 0xffff} {
			bits := high<<16 | low
			hi, lo := Split(bits)
			if back := Join(hi, lo); back != bits {
				t.Fatalf("%#08x → %#04x, %#04x → %#08x", bits, hi, lo, back)
			}
		}
	}
}

func TestSplitRoundsHalfUp(t *testing.T) {
	tests := map[string]struct {
		bits uint32
		hi   uint16
		lo   int16
	}{
		"exact":                    {0x3f800000, 0x3f80, 0},
		"below half":               {0x3f807fff, 0x3f80, 0x7fff},
		"half":                     {0x3f808000, 0x3f81, -0x8000},
		"half of an odd one":       {0x3f818000, 0x3f82, -0x8000},
		"above half":               {0xbf80ffff, 0xbf81, -1},
		"carry into the exponent":  {0x3fffffff, 0x4000, -1},
		"greatest denormal":        {0x007fffff, 0x0080, -1},
		"greatest number":          {0x7f7fffff, 0x7f80, -1},
		"greatest that stays":      {0x7f7f7fff, 0x7f7f, 0x7fff},
		"infinity":                 {0x7f800000, 0x7f80, 0},
		"negative zero":            {0x80000000, 0x8000, 0},
		"the default quiet NaN":    {0x7fc00000, 0x7fc0, 0},
		"the processor's own NaN":  {0xffc00000, 0xffc0, 0},
		"NaN next to the infinity": {0x7f800001, 0x7f80, 1},
	}
	for name, c := range tests {
		if hi, lo := Split(c.bits); hi != c.hi || int16(lo) != c.lo {
			t.Errorf("%s: Split(%#08x) = %#04x, %d, want %#04x, %d", name, c.bits, hi, int16(lo), c.hi, c.lo)
		}
	}
}

// TestOfMatrices: Muon updates linear layers' weights as matrices, but neither embeddings, head,
// routers (fp32) nor vectors.
func TestOfMatrices(t *testing.T) {
	for role, want := range map[model.Role]bool{model.RoleQKV: true, model.RoleDown: true, model.RoleO: true, model.RoleGateUp: true,
		model.RoleEmbed: false, model.RolePositions: false, model.RoleLMHead: false} {
		p := model.Param{Role: role, Rows: 8, Cols: 4, Dims: 2, Stored: []model.Stored{{Name: "t", Rows: 8}}}
		vector, fp32 := p, p
		vector.Dims, fp32.F32 = 1, true
		if OfMatrices(p) != want || OfMatrices(vector) || OfMatrices(fp32) {
			t.Errorf("%s: a matrix: %t, a vector: %t, kept in fp32: %t; want %t, false, false", role, OfMatrices(p), OfMatrices(vector), OfMatrices(fp32), want)
		}
		l := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, false, model.Param{})
		o := Muon{Others: AdamW{}}
		if matrices, units := len(Matrices(l)), len(o.Units(l)); matrices+units != 1 || (matrices == 1) != want {
			t.Errorf("%s: %d matrices, %d units", role, matrices, units)
		}
		if name := o.Planes(Pieces(p)[0])[0].Name; (name == momentum.Name) != want {
			t.Errorf("%s: the first plane is %s", role, name)
		}
	}
}
