package appraise

import (
	"testing"

	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestElementwiseBytes compares the bytes that the emulator counts for the elementwise passes of a block of Qwen2.5-7B
// with Operation.Bytes, which layers.TestBytesOfElementwisePasses adds up. Weights, positions and partial sums come on
// top.
func TestElementwiseBytes(t *testing.T) {
	z := Size{Tokens: 1024, Width: 3584, Heads: 28, KVHeads: 4, MLP: 18944}
	g := testkit.Must(FindGPU("a100"))(t)
	cases := append(z.norms(device.BF16)[:2], z.elements(device.BF16)...)
	cases = append(cases, Case{Name: "GLUBackward", Shape: "without Y", DType: device.BF16, make: func(r *rig) device.Op { // where the activation is kept
		gu, n := r.random(device.BF16, 2*z.Tokens*z.MLP), z.Tokens*z.MLP
		return &op.GLUBackward{DGU: gu, DY: r.random(device.BF16, n), GU: gu, T: z.Tokens, F: z.MLP}
	}})
	const row = 4 * 3584 // bytes of a row of fp32 weights or partial sums
	extra := map[string]int64{
		"RMSNorm":         row/1024 + 4,                    // W, RStd
		"RMSNormBackward": 3*row/1024 + 4 + 2*128*row/1024, // W, DW twice, RStd, 128 partial sums of 8 tokens each
		"RoPE":            4,                               // Pos
		"GLU":             0,
		"GLUBackward":     0,
		"AddBiasGrad":     2 * 16 * row / 1024, // 16 partial sums
	}
	found := map[string]int{}
	for _, c := range cases {
		more, ok := extra[c.Name]
		if !ok {
			continue
		}
		o := testkit.Must(Count(&c, g))(t)
		var moved int64
		for _, l := range o.Launches {
			moved += l.Memory
		}
		if want := o.Bytes + more*int64(z.Tokens); moved != want {
			t.Errorf("%s %s: %d bytes, want %d: %d a token and %d more", c.Name, c.Shape, moved, want, o.Bytes/int64(z.Tokens), more)
		}
		found[c.Name]++
	}
	if len(found) != len(extra) || found["GLUBackward"] != 2 {
		t.Errorf("cases %v of %v, GLUBackward with and without Y", found, extra)
	}
}
