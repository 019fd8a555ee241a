package checkpoint

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// TestLogWindow: the mean weighs losses by their tokens; a single step's mean is exactly its loss. A step without a
// finite loss or without tokens still counts as a step.
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

// TestStateWithoutWindow: an empty LogWindow is not written, as in older versions. If a state has
// none, it is read as empty.
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

// TestPairLog: the sums over pairs are written as a list of numbers, and left out if there are no
// pairs. They are read back unchanged. Sums that are not finite are ignored.
func TestPairLog(t *testing.T) {
	w := LogWindow{Steps: 2, Tokens: 3, Loss: 0.5}
	for _, text := range []string{
		`{"steps":2,"supervised_tokens":3,"loss":0.5}`,
		`{"steps":2,"supervised_tokens":3,"loss":0.5,"pairs":[1,2,3,4,5,6]}`,
		`{"steps":2,"supervised_tokens":3,"loss":0.5,"pairs":[2,4,6,8,10,12]}`,
	} {
		got, err := json.Marshal(w)
		if err != nil || string(got) != text {
			t.Errorf("%s, %v, not %s", got, err, text)
		}
		var read LogWindow
		if err := json.Unmarshal([]byte(text), &read); err != nil || read != w {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		w.AddPairs(PairLog{Pairs: 1, Chosen: 2, Rejected: 3, Right: 4, LogChosen: 5, LogRejected: 6})
	}
	was := w
	w.AddPairs(PairLog{Pairs: 1, LogRejected: math.NaN()})
	w.AddPairs(PairLog{Pairs: 1, Chosen: math.Inf(1)})
	if w != was {
		t.Errorf("%+v after numbers that are not finite, %+v before", w, was)
	}
	for _, text := range []string{`{"pairs":"none"}`, `{"pairs":[1,2,3,4,5]}`, `{"pairs":[1,2,3,4,5,6,7]}`} {
		if err := json.Unmarshal([]byte(text), &w); err == nil {
			t.Errorf("%s is read as %+v", text, w)
		}
	}
}

// TestNewest: Newest finds the newest checkpoint by the step in its name. It skips directories
// without a state, and checkpoints whose weights may be broken.
func TestNewest(t *testing.T) {
	c := small(t)
	layers := newLayers(c, false)
	out := fastDir(t)
	if dir, _, err := Newest(filepath.Join(out, "nothing")); dir != "" || err != nil {
		t.Errorf("no directory: %q, %v", dir, err)
	}
	if dir, _, err := Newest(out); dir != "" || err != nil {
		t.Errorf("no checkpoint: %q, %v", dir, err)
	}
	for _, step := range []int{9, 10, 100} {
		s := testState
		s.Step = step
		testkit.NoError(t, saveStep(out, layers, c, s))
	}
	write(t, filepath.Join(out, "checkpoint-200", "x"), []byte("garbage"))
	write(t, filepath.Join(out, "checkpoint-300.tmp-7", stateName), []byte("{}"))
	dir, state, err := Newest(out)
	if err != nil || dir != filepath.Join(out, "checkpoint-100") || state.Step != 100 {
		t.Errorf("%q, step %d, %v", dir, state.Step, err)
	}
	if _, _, err := MarkNonFinite(OS(), out, 50, 100, 103); err != nil {
		t.Fatal(err)
	}
	if dir, state, err := Newest(out); err != nil || dir != filepath.Join(out, "checkpoint-10") || state.Step != 10 {
		t.Errorf("past a marked one: %q, step %d, %v", dir, state.Step, err)
	}
}

// TestMean: if Layer.Mean is set, the model's files get this average instead of the weights, in
// fp32 or rounded to bf16, also for rows that share a tensor. Frozen tensors keep their weights.
func TestMean(t *testing.T) {
	c := config(t, nil)
	testkit.NoError(t, c.SetFreeze(model.Freeze{Names: []string{"o_proj", "input_layernorm"}}))
	for name, layersOf := range map[string]func(*model.Config, bool) []Layer{"alone": newLayers, "placed": placedLayers} {
		for _, bf16 := range []bool{false, true} {
			from, want := layersOf(c, bf16), layersOf(c, bf16)
			r := rand.New(rand.NewPCG(5, 1))
			for i, l := range from {
				from[i].Mean = optim.MeanOf(averaged(&from[i]))
				for k, tl := range l.Layout.Tensors {
					if tl.Ref {
						continue
					}
					for e := range tl.Elems() {
						bits := math.Float32bits(float32(r.NormFloat64()))
						want[i].setWeights(tl, e, []uint32{bits})
						if tl.Frozen {
							from[i].setWeights(tl, e, []uint32{bits})
						} else {
							from[i].Mean.Floats(k, e, 1)[0] = math.Float32frombits(bits)
						}
					}
				}
			}
			for _, d := range []DType{F32, BF16} {
				var models [2]map[string][]byte
				for i, layers := range [][]Layer{from, want} {
					dir := t.TempDir()
					testkit.NoError(t, WriteModel(dir, layers, WriterOptions{Config: c, SaveDType: d}, nil))
					_, models[i] = tensorsOf(t, dir)
				}
				for tensor, w := range models[1] {
					if !bytes.Equal(models[0][tensor], w) {
						t.Errorf("%s, bf16 %t as %s: %s differs", name, bf16, d, tensor)
					}
				}
			}
		}
	}
}

// averaged gives a layer the planes of an optimizer that also averages the weights, and returns
// them.
func averaged(l *Layer) []optim.State {
	l.Planes = nil
	for _, p := range (optim.Average{Decay: 0.5}).With(planes).Of(l.Layout) {
		l.Planes = append(l.Planes, newState(p, l.Layout))
	}
	return l.Planes
}
