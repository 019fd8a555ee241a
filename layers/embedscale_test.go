package layers

import (
	"math"
	"testing"

	"mt/base/bf16"
	"mt/device"
	"mt/model"
)

// TestEmbedScaleIsRounded: the embedding's scale is rounded to the weights' type, forward and
// backward, if Transformers keeps the scale in a tensor of that type. For example, √12 = 3.4641
// becomes 3.46875 in bf16, whose spacing there is 1/64. A scale that is a Python number in
// Transformers is not rounded.
func TestEmbedScaleIsRounded(t *testing.T) {
	for _, tc := range []struct {
		act     device.DType
		rounded bool
		scale   float32
	}{{device.BF16, true, 3.46875}, {device.BF16, false, 3.4641016}, {device.F32, true, 3.4641016}, {device.F32, false, 3.4641016}} {
		cfg := config(func(c *model.Config) { c.EmbedScale, c.EmbedRounded = math.Sqrt(12), tc.rounded })
		act, scale := tc.act, tc.scale
		for _, d := range devices {
			r := newRig(t, d.open(t), spec(cfg, KeepNothing, act), nil)
			n := r.spec.MaxTokens
			values := make([]float64, n*cfg.HiddenSize)
			rows, starts := make([]int32, n), make([]int32, n+1)
			for i := range values {
				values[i] = 1 + float64(i%128)/128 // all that bf16 has between 1 and 2
			}
			for i := range rows {
				rows[i], starts[i+1] = int32(i), int32(i+1)
			}
			mb := MicroBatch{Tokens: n, UniqueRows: n, Index: r.ints(rows...), RowStart: r.ints(starts...), RowPos: r.ints(rows...)}
			table, x := r.tensor(act, len(values)), r.tensor(act, len(values))
			r.put(table, values)
			r.tpl.EmbedForward(r.s, OnDevice(x), table, mb, 0, device.Mem{})
			grad := r.tensor(device.F32, len(values))
			r.tpl.EmbedBackward(r.s, grad, device.Tensor{}, OnDevice(table), mb, device.Mem{}, true)
			for what, got := range map[string][]float64{"row": r.get(x), "gradient": r.get(grad)} {
				for i, v := range values {
					want := float32(v) * scale
					if act == device.BF16 {
						want = bf16.Widen(bf16.Round(want))
					}
					if float32(got[i]) != want {
						t.Fatalf("%s, %v: %s of %v is %v, want %v", d.name, act, what, v, got[i], want)
					}
				}
			}
			r.checkGuards()
		}
	}
}
