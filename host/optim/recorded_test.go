package optim

import (
	_ "embed"
	"encoding/json"
	"math"
	"testing"

	"mt/internal/pytest"
	"mt/model"
)

//go:embed testdata/states.json
var statesRecording []byte

// recordedStates is what testdata/states.py writes.
type recordedStates struct {
	Cases []struct {
		Name    string
		Options struct {
			LR          float64 `json:"lr"`
			Betas       [2]float64
			Eps         float64
			WeightDecay float64 `json:"weight_decay"`
			Momentum    float64
			Nesterov    bool
		}
		Last    []byte
		Moments []struct{ Values, Codes, Scales []byte }
	}
	Maps map[string][]byte
}

// hashed are the numbers of the same name in testdata/states.py.
func hashed(step uint32, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		x := uint32(i)*2654435761 + step*2246822519 + 12345
		x = (x ^ x>>15) * 2246822519
		x = (x ^ x>>13) * 3266489917
		x ^= x >> 16
		out[i] = float32(math.Ldexp(float64(int(x>>8)-1<<23), -26-i%13))
	}
	return out
}

// matrix is a layer of one matrix of n elements.
func matrix(n int, bf16 bool) model.Layout {
	p := model.Param{Role: model.RoleO, Rows: n / 64, Cols: 64, Dims: 2, Stored: []model.Stored{{Rows: n / 64}}}
	return model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, bf16, model.Param{})
}

// held is the memory of a layer of one tensor.
func held(l *model.Layout, planes Planes) (Weight, []State) {
	words := func(n int64) []byte { return bytesOf(make([]float32, (n+3)/4))[:n] }
	w := Weight{Layout: l, Tile: words(l.TileBytes)}
	if l.Tensors[0].BF16 {
		w.Lo = make([]uint16, l.Elems)
	}
	var states []State
	for _, p := range planes.Of(*l) {
		states = append(states, NewState(p, *l, Whole(*l), words))
	}
	return w, states
}

// put makes x the weights, get returns them.
func (w Weight) put(x []float32) {
	if w.Lo == nil {
		copy(View[float32](w.Tile), x)
		return
	}
	SplitRow(View[uint16](w.Tile), w.Lo, x)
}

func (w Weight) get(n int) []float32 {
	x := make([]float32, n)
	if w.Lo == nil {
		copy(x, View[float32](w.Tile))
	} else {
		JoinRow(x, View[uint16](w.Tile)[:n], w.Lo[:n])
	}
	return x
}

// update moves all units of a layer of one tensor.
func update(o Optimizer, r Rate, w Weight, states []State, g Grad) {
	step := o.At(r)
	for _, u := range o.Units(*w.Layout) {
		part := g
		if !g.Sparse {
			part = g.Part(u.At, u.N)
		}
		step.Step(u, w, states, part)
	}
}

// TestRecordedOptimizers holds 50 steps against what the programs did whose arithmetic it is.
//
// A weight is off by the roundings of itself, four a step of 2⁻²⁴ of at most a quarter, and by those of its
// updates, eight of 2⁻²⁴ of at most ten rates; an fp32 moment by four of 2⁻²⁴ of at most 1. A moment as near as that to halfway between two codes
// may get the other one, and its weight then moves otherwise: codes are 2⁻⁹ of their number apart at least, so
// of 2·50·4096 moments 8·2⁻²⁴·2⁹ are, which is 100. None was where the programs divide by the scale, as we do.
func TestRecordedOptimizers(t *testing.T) { holdRecording(t, statesRecording) }

// TestOptimizersOfOtherPrograms makes the recording anew.
func TestOptimizersOfOtherPrograms(t *testing.T) {
	python := pytest.Need(t, "torch", "torchao", "bitsandbytes")
	holdRecording(t, pytest.Run(t, python, "testdata/states.py"))
}

func holdRecording(t *testing.T, recording []byte) {
	var rec recordedStates
	if err := json.Unmarshal(recording, &rec); err != nil {
		t.Fatal(err)
	}
	few := map[string]int{"lion_8bit": 100}
	for _, c := range rec.Cases {
		o := c.Options
		adam := AdamW{Beta1: o.Betas[0], Beta2: o.Betas[1], Eps: o.Eps, WeightDecay: o.WeightDecay}
		lion := Lion{Beta1: o.Betas[0], Beta2: o.Betas[1], WeightDecay: o.WeightDecay}
		by, known := map[string]Optimizer{"adamw": adam, "adamw_8bit": Quantised{adam, 8}, "adamw_4bit": Quantised{adam, 4},
			"lion": lion, "lion_8bit": Quantised{lion, 8}, "sgd": SGD{o.Momentum, o.WeightDecay, o.Nesterov}}[c.Name]
		if !known {
			t.Fatalf("unknown optimizer %q", c.Name)
		}
		last := View[float32](c.Last)
		for _, bf16 := range []bool{false, true} {
			l := matrix(len(last), bf16)
			w, states := held(&l, by.Planes)
			others := 0
			w.put(hashed(0, len(last)))
			for step := range 50 { // gradients are halved and doubled again
				g := hashed(uint32(step+1), len(last))
				for i := range g {
					g[i] /= 2
				}
				update(by, Rate{LR: o.LR, Step: int64(step + 1), Clip: 2}, w, states, gradFrom(g, false))
			}
			for i, x := range w.get(len(last)) {
				if off := math.Abs(float64(x - last[i])); !(off <= 50*(4*0.25+8*10*o.LR)/(1<<24)) {
					others++
				}
			}
			for i, m := range c.Moments {
				if m.Codes == nil {
					for k, x := range View[float32](m.Values) {
						if off := math.Abs(float64(x - View[float32](states[i].Data)[k])); !(off <= 50.0*4/(1<<24)) {
							t.Errorf("%s: moment %d[%d] is off by %g", c.Name, i, k, off)
						}
					}
					continue
				}
				own := states[2*i].Data
				for k, code := range m.Codes {
					mine := own[k*len(own)/len(m.Codes)]
					if len(own) < len(m.Codes) { // two in a byte
						mine = mine >> (k % 2 * 4) & 15
					}
					if mine != code {
						others++
					}
				}
				for k, s := range View[float32](m.Scales) {
					if off := math.Abs(float64(View[float32](states[2*i+1].Data)[k]/s) - 1); !(off < 50.0*4/(1<<24)) {
						t.Errorf("%s: scale %d of moment %d is off by %g of it", c.Name, k, i, off)
					}
				}
			}
			if others > few[c.Name] {
				t.Errorf("%s, split %t: %d weights and codes are others", c.Name, bf16, others)
			}
		}
	}
	for name, b := range map[string]*codebook{"signed8": schemes[8].signed, "other8": schemes[8].other, "signed4": schemes[4].signed, "other4": schemes[4].other,
		"bitsandbytes": schemes[8].signed} {
		for i, x := range View[float32](rec.Maps[name]) {
			if x != b.values[i] {
				t.Errorf("map %s[%d] is %v, want %v", name, i, b.values[i], x)
			}
		}
	}
}
