package optim

import "testing"

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
