package checkpoint

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// TestLogWindow: the mean is that of the losses by their tokens, of one step its own
// to the bit; what has no finite loss or no tokens is a step all the same.
func TestLogWindow(t *testing.T) {
	third := 1.0 / 3
	type add struct {
		loss   float64
		tokens int64
	}
	for _, tc := range []struct {
		name  string
		adds  []add
		mean  float64
		steps int
	}{
		{"nothing", nil, math.NaN(), 0},
		{"one", []add{{third, 7}}, third, 1},
		{"equal ones", []add{{third, 7}, {third, 9}, {third, 11}}, third, 3},
		{"by tokens", []add{{4, 100}, {2, 300}}, 2.5, 2},
		{"not finite", []add{{math.Inf(1), 5}, {3, 10}, {math.NaN(), 10}}, 3, 3},
		{"only such", []add{{math.NaN(), 10}, {math.Inf(-1), 10}}, math.NaN(), 2},
		{"without tokens", []add{{5, 0}, {3, 10}}, 3, 2},
	} {
		var w LogWindow
		for _, a := range tc.adds {
			w.Add(a.loss, a.tokens)
		}
		if got := w.Mean(); w.Steps != tc.steps || got != tc.mean && !(math.IsNaN(got) && math.IsNaN(tc.mean)) {
			t.Errorf("%s: mean %v of %d steps, want %v of %d", tc.name, got, w.Steps, tc.mean, tc.steps)
		}
		raw, err := json.Marshal(w)
		var again LogWindow
		if err != nil || json.Unmarshal(raw, &again) != nil || again != w {
			t.Errorf("%s: %+v is read again as %+v from %s (%v)", tc.name, w, again, raw, err)
		}
	}
}

// TestStateWithoutWindow: a state whose window is empty is written as it was before
// there were windows, and one without is read as an empty window.
func TestStateWithoutWindow(t *testing.T) {
	raw, err := json.Marshal(TrainerState{Step: 4})
	if err != nil || strings.Contains(string(raw), "window") {
		t.Errorf("%s, %v", raw, err)
	}
	var s TrainerState
	if err := json.Unmarshal([]byte(`{"global_step":4,"adam_step":4,"data_pos":16,"tokens":9,"seed":1,"epoch":0.5,"nonfinite":0}`), &s); err != nil || s.Log != (LogWindow{}) || s.Step != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}
