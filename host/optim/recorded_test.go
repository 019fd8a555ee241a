package optim

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

//go:embed testdata/states.json
var statesRecording []byte

// recordedStates has what torch, torchao and bitsandbytes computed, recorded by testdata/states.py.
type recordedStates struct {
	Programs map[string]string // versions of the Python packages, by name
	Cases    []recordedCase
	Maps     map[string][]byte
}

type recordedCase struct {
	Name    string
	Cols    int // columns of a table whose steps have gradients of only some rows; else 0
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

// hashed returns n reproducible numbers, those of the function hashed in testdata/states.py.
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

// matrix returns a layer with one matrix of n elements and 64 columns.
func matrix(n int, bf16 bool) model.Layout { return matrixOf(n, 64, bf16) }

// matrixOf returns a layer with one matrix of n elements and cols columns.
func matrixOf(n, cols int, bf16 bool) model.Layout {
	p := model.Param{Role: model.RoleO, Rows: n / cols, Cols: cols, Dims: 2, Stored: []model.Stored{{Rows: n / cols}}}
	return model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, bf16, model.Param{})
}

// held allocates the weights and planes of a layer with one tensor.
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

// put sets the weights to x; get returns them.
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

// update makes one update of all units of a layer with one tensor.
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

// TestRecordedOptimizers compares 50 steps of each optimizer with the program (torch, torchao or
// bitsandbytes) whose arithmetic mt follows.
//
// In each step a weight gets at most four roundings of its own (2⁻²⁴ of at most 0.25), and eight of
// its update (2⁻²⁴ of at most ten learning rates). An fp32 moment gets four of 2⁻²⁴ of at most 1.
// If such a difference moves a moment across the midpoint of two codes, the moment gets the other
// code, and its weight differs more. Neighbouring codes are at least 2⁻⁹ of their number apart, so
// this is expected for 8·2⁻²⁴·2⁹ of the 2·50·4096 moments: 100. It happens for none if the program
// divides by the scale, as mt does; bitsandbytes multiplies by the reciprocal.
func TestRecordedOptimizers(t *testing.T) { holdRecording(t, statesRecording) }

// TestOptimizersOfOtherPrograms makes the comparison of TestRecordedOptimizers with a new recording
// by the installed Python packages.
func TestOptimizersOfOtherPrograms(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "torchao", "bitsandbytes")
	holdRecording(t, testkit.RunPython(t, python, "testdata/states.py"))
}

func holdRecording(t *testing.T, recording []byte) {
	var rec recordedStates
	testkit.NoError(t, json.Unmarshal(recording, &rec))
	for _, c := range rec.Cases {
		holdCase(t, c, rec.Programs)
	}
	for name, b := range map[string]*codebook{"signed8": schemes[8].signed, "other8": schemes[8].other, "signed4": schemes[4].signed, "other4": schemes[4].other,
		"bitsandbytes": schemes[8].signed, "bitsandbytes' other": schemes[8].other} {
		for i, x := range View[float32](rec.Maps[name]) {
			if x != b.values[i] {
				t.Errorf("map %s[%d] is %v, want %v", name, i, b.values[i], x)
			}
		}
	}
}

// recorded returns mt's optimizer for the case, and the program (such as torch) and its class with
// which the optimizer is compared.
func (c recordedCase) recorded() (o Optimizer, program, class string) {
	adam := AdamW{Beta1: c.Options.Betas[0], Beta2: c.Options.Betas[1], Eps: c.Options.Eps, WeightDecay: c.Options.WeightDecay}
	lion := Lion{Beta1: c.Options.Betas[0], Beta2: c.Options.Betas[1], WeightDecay: c.Options.WeightDecay}
	switch c.Name {
	case "adamw":
		return adam, "torch", "AdamW"
	case "adamw_8bit":
		return Quantised{adam, 8}, "torchao", "AdamW8bit"
	case "adamw_bnb_8bit":
		return Quantised{adam, 8}, "bitsandbytes", "AdamW8bit"
	case "adamw_4bit":
		return Quantised{adam, 4}, "torchao", "AdamW4bit"
	case "lion":
		return lion, "bitsandbytes", "Lion32bit"
	case "lion_8bit":
		return Quantised{lion, 8}, "bitsandbytes", "Lion8bit"
	case "sgd":
		return SGD{c.Options.Momentum, c.Options.WeightDecay, c.Options.Nesterov}, "torch", "SGD"
	}
	panic("unknown optimizer " + c.Name)
}

// holdCase compares one case with its recording, with plain and with split weights. It logs a line of the table that
// tools/parity.sh prints.
func holdCase(t *testing.T, c recordedCase, versions map[string]string) {
	by, program, class := c.recorded()
	name, few, bound := c.title(), 0, 50*(4*0.25+8*10*c.Options.LR)/(1<<24)
	if _, coded := by.(Quantised); coded && program == "bitsandbytes" {
		few = 100
	}
	var seen differences
	for _, bf16 := range []bool{false, true} {
		w, states := c.play(by, bf16)
		d := c.compare(t, w, states, bound)
		if d.others > few {
			t.Errorf("%s, split %t: %d weights and codes are others", name, bf16, d.others)
		}
		seen = differences{max(seen.widest, d.widest), max(seen.others, d.others), d.codes}
	}
	allowed, also := fmt.Sprintf("%.1e", bound), ""
	if seen.codes > 0 {
		also = fmt.Sprintf("; others: %d of %d weights and codes", seen.others, len(c.Last)/4+seen.codes)
		allowed += fmt.Sprintf("; others: %d", few)
	}
	t.Logf("parity| %s | %s %s `%s` | %.1e%s | %s |", name, program, versions[program], class, seen.widest, also, allowed)
}

// title returns the name of the case in the table.
func (c recordedCase) title() string {
	name := "`" + c.Name + "`"
	if c.Options.Momentum > 0 {
		name += fmt.Sprintf(", `momentum: %g`", c.Options.Momentum)
	}
	if c.Options.Nesterov {
		name += ", `nesterov`"
	}
	if c.Cols > 0 {
		name += fmt.Sprintf(", a table of %d columns", c.Cols)
	}
	return name
}

// differences counts how mt's weights and codes differ from a recording's.
type differences struct {
	widest        float64 // of weights
	others, codes int     // number of weights off by more than a bound and of codes that differ; number of all codes
}

// compare compares weights and moments with the recording. It counts weights off by more than
// bound, and other codes. The test fails if fp32 moments or scales differ by more than they may.
func (c recordedCase) compare(t *testing.T, w Weight, states []State, bound float64) (d differences) {
	last := View[float32](c.Last)
	for i, x := range w.get(len(last)) {
		off := math.Abs(float64(x - last[i]))
		d.widest = max(d.widest, off)
		if !(off <= bound) {
			d.others++
		}
	}
	for i, m := range c.Moments {
		if m.Codes == nil {
			for k, x := range View[float32](m.Values) {
				if off := math.Abs(float64(x - View[float32](states[i].Data)[k])); !(off <= 50.0*4/(1<<24)) {
					t.Errorf("%s: moment %d[%d] is off by %g", c.title(), i, k, off)
				}
			}
			continue
		}
		own := states[2*i].Data
		d.codes += len(m.Codes)
		for k, code := range m.Codes {
			mine := own[k*len(own)/len(m.Codes)]
			if len(own) < len(m.Codes) { // two in a byte
				mine = mine >> (k % 2 * 4) & 15
			}
			if mine != code {
				d.others++
			}
		}
		for k, s := range View[float32](m.Scales) {
			if off := math.Abs(float64(View[float32](states[2*i+1].Data)[k]/s) - 1); !(off < 50.0*4/(1<<24)) {
				t.Errorf("%s: scale %d of moment %d is off by %g of it", c.title(), k, i, off)
			}
		}
	}
	return d
}

// play makes the updates of the recording with optimizer by, and returns the weights and planes.
// bf16: the weights are split into halves.
func (c recordedCase) play(by Optimizer, bf16 bool) (Weight, []State) {
	n, cols := len(c.Last)/4, max(c.Cols, 64)
	l := matrixOf(n, cols, bf16)
	w, states := held(&l, by.Planes)
	w.put(hashed(0, n))
	for step := 1; step <= 50; step++ { // gradients are halved and doubled again
		g := hashed(uint32(step), n)
		for i := range g {
			g[i] /= 2
		}
		grad := gradFrom(g, false)
		if c.Cols > 0 {
			var rows []float32
			var ids []int32
			for r := range n / cols {
				if r%3 != step%3 {
					rows, ids = append(rows, g[r*cols:][:cols]...), append(ids, int32(r))
				}
			}
			grad = gradFrom(rows, false).OfRows(ids)
		}
		update(by, Rate{LR: c.Options.LR, Step: int64(step), Clip: 2}, w, states, grad)
	}
	return w, states
}
