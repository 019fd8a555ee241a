package bench

import (
	"encoding/json"
	"strings"
	"testing"

	"mt/internal/long"
	"mt/internal/machine"
	"mt/internal/train"
)

func init() { machine.CPURateSize = 64 }

func TestShapes(t *testing.T) {
	long.NotShort(t)
	for _, alias := range []bool{false, true} {
		if alias && long.Race {
			t.Skip("layers that share memory are read and updated at the same time: what they compute means nothing")
		}
		r, err := Shapes(t.Context(), ShapesOptions{Name: "tiny", Base: TrainShapes()["tiny"].With(TrainShape{Rows: 1, SeqLen: 16}), Depths: []float64{0.1, 2}, Widths: []int{3}, DType: "fp32",
			Ours: train.SyntheticOptions{Threads: 1, Recompute: "auto", AliasLayers: alias}, Steps: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 3 || r.Aliased != alias {
			t.Fatalf("%+v", r)
		}
		for i, want := range []TrainShape{{Layers: 1, HiddenSize: 64, Heads: 4}, {Layers: 4, HiddenSize: 64, Heads: 4}, {Layers: 2, HiddenSize: 192, Heads: 12}} {
			x := r.Rows[i]
			sound(t, x.Sweep, *x.TokPerS)
			if x.Shape.Layers != want.Layers || x.Shape.HiddenSize != want.HiddenSize || x.Shape.Heads != want.Heads || x.Shape.headDim() != 16 || x.LeftOut != "" {
				t.Errorf("row %d: %+v", i, x)
			}
			if x.Aliased != alias || (x.HostBytes < x.HostWhole) != (alias && want.Layers > 1) || x.TFLOPS <= 0 {
				t.Errorf("row %d: %+v", i, x)
			}
		}
		checkReport(t, r)
		var table, picture strings.Builder
		if err := r.WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		if err := r.Chart().WriteSVG(&picture); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		// On the whole, and beside each of two figures of three rows.
		if n := strings.Count(table.String(), "ALIASED"); n != map[bool]int{false: 0, true: 2 + 6}[alias] {
			t.Errorf("aliased %v: said %d times in\n%s", alias, n, table.String())
		}
		if n := strings.Count(string(data), `"aliased":true`); n != map[bool]int{false: 0, true: 4}[alias] || strings.Contains(picture.String(), "ALIASED") != alias {
			t.Errorf("aliased %v: JSON says it %d times\n%s", alias, n, data)
		}
	}
}

// A shape that does not fit is left out, with the reason and the way out; where none
// fits that is the error.
func TestShapesLeaveOut(t *testing.T) {
	o := ShapesOptions{Name: "tiny", Base: TrainShapes()["tiny"].With(TrainShape{Rows: 1, SeqLen: 16}), Depths: []float64{1}, Widths: []int{16}, DType: "fp32",
		Ours: train.SyntheticOptions{Threads: 1, Recompute: "auto", DeviceMemory: 3 << 20}, Steps: 1}
	r, err := Shapes(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if r.Steps != 1 {
		t.Errorf("%d steps were trained, want 1", r.Steps)
	}
	if r.Rows[0].LeftOut != "" || r.Rows[1].LeftOut == "" || !strings.Contains(table.String(), "left out: width × 16: ") || !strings.Contains(table.String(), "--alias-layers") {
		t.Errorf("%s", table.String())
	}
	o.Depths = nil
	if _, err := Shapes(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no shape ran") {
		t.Errorf("%v", err)
	}
}

func TestBillions(t *testing.T) {
	for n, want := range map[int64]string{123_456_789: "123.5M", 1e9: "1.0B", 7_620_000_000: "7.6B"} {
		if got := billions(n); got != want {
			t.Errorf("%d parameters are printed as %s, want %s", n, got, want)
		}
	}
}
