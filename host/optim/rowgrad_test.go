package optim

import "testing"

func TestRoundIsNearestEven(t *testing.T) {
	tests := []struct {
		x    uint32
		want uint16
	}{
		{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
		{0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}, {0x80000000, 0x8000},
		{0x00008000, 0x0000}, {0x00018000, 0x0002},
	}
	for _, c := range tests {
		if got := round(fromBits(c.x)); got != c.want {
			t.Errorf("round(%#08x) = %#04x, want %#04x", c.x, got, c.want)
		}
	}
}

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
