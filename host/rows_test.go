package host

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

func TestReadRowsReturnsWhatWriteRowsTook(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		s := newStore(t, layouts(bf16), nil)
		fillStore(s, 1, wild)
		l := s.Layers[1]
		for n, tl := range l.Layout.Tensors {
			row, rows := tl.Rows/3, tl.Rows/2
			before := make([]float32, tl.Elems())
			l.ReadRows(n, 0, tl.Rows, before)
			want := make([]float32, rows*tl.Cols)
			for i := range want {
				want[i] = math.Float32frombits(0x7f7fffff - uint32(i)*0x10003)
			}
			l.WriteRows(n, row, rows, want)
			copy(before[row*tl.Cols:], want)
			after := make([]float32, tl.Elems())
			l.ReadRows(n, 0, tl.Rows, after)
			sameFloats(t, string(tl.Role), before, after)
		}
	}
}

func TestHiPlaneIsTheTile(t *testing.T) {
	s := newStore(t, layouts(true), nil)
	l := s.Layers[1]
	n := 2
	tl := l.Layout.Tensors[n]
	l.WriteRows(n, 1, 1, make([]float32, tl.Cols))
	l.WriteRows(n, 0, 1, append([]float32{-1.5}, make([]float32, tl.Cols-1)...))
	if got := binary.LittleEndian.Uint16(l.Tile[tl.TileOff:]); got != 0xbfc0 || l.HiPlane(n)[0] != got {
		t.Errorf("first element in the tile is %#04x, in the plane %#04x, want 0xbfc0", got, l.HiPlane(n)[0])
	}
	if len(l.LoPlane(n)) != int(tl.Elems()) || len(l.F32Plane(0)) != 19 {
		t.Errorf("planes of %d and %d elements", len(l.LoPlane(n)), len(l.F32Plane(0)))
	}
}

func TestGatherRows(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		s := newStore(t, layouts(bf16), poolOf(t, 3))
		fillStore(s, 5, wild)
		l := s.Layers[0]
		tl := l.Layout.Tensors[0]
		width := int(tl.TileBytes()) / tl.Rows
		var ids []int32
		var want []byte
		for i := range 200 {
			id := i * 31 % tl.Rows
			ids = append(ids, int32(id))
			want = append(want, l.Tile[id*width:(id+1)*width]...)
		}
		got := make([]byte, len(want))
		l.GatherRows(got, 0, ids)
		if !bytes.Equal(got, want) {
			t.Errorf("bf16 %t: gathered rows differ from the table's", bf16)
		}
	}
}

func TestMisuseOfRowsPanics(t *testing.T) {
	s := newStore(t, layouts(true), nil)
	l, head := s.Layers[0], s.Layers[2]
	tests := map[string]func(){
		"row after the last":    func() { l.ReadRows(0, 66, 2, make([]float32, 38)) },
		"too few elements":      func() { l.WriteRows(0, 0, 2, make([]float32, 37)) },
		"too many elements":     func() { l.WriteRows(0, 0, 2, make([]float32, 39)) },
		"plane of a reference":  func() { head.HiPlane(1) },
		"fp32 plane of a split": func() { l.F32Plane(0) },
		"split plane of fp32":   func() { head.LoPlane(0) },
		"id outside the table":  func() { l.GatherRows(make([]byte, 38), 0, []int32{67}) },
		"negative id":           func() { l.GatherRows(make([]byte, 38), 0, []int32{-1}) },
		"short destination":     func() { l.GatherRows(make([]byte, 37), 0, []int32{1}) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) { mustPanic(t, f) })
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}
