package checkpoint

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"mt/host/optim"
	"mt/model"
)

// TestMean: a plane that is written in place of the weights gives the model of its numbers, fp32 or rounded, wherever rows lie; of what is frozen
// it has the weights.
func TestMean(t *testing.T) {
	c := config(t, nil)
	if err := c.SetFreeze(model.Freeze{Names: []string{"o_proj", "input_layernorm"}}); err != nil {
		t.Fatal(err)
	}
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
					if err := WriteModel(dir, layers, WriterOptions{Config: c, SaveDType: d}, nil); err != nil {
						t.Fatal(err)
					}
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

// averaged are the planes of a layer with an average among them.
func averaged(l *Layer) []optim.State {
	l.Planes = nil
	for _, p := range (optim.Average{Decay: 0.5}).With(planes).Of(l.Layout) {
		l.Planes = append(l.Planes, newState(p, l.Layout))
	}
	return l.Planes
}
