package model

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// ulps is the distance of a and b in units of the last place of float32.
func ulps(a, b float32) int64 {
	return max(order(a), order(b)) - min(order(a), order(b))
}

// order numbers the float32 values from the least to the greatest.
func order(x float32) int64 {
	i := int64(int32(math.Float32bits(x)))
	if i < 0 {
		i = math.MinInt32 - i
	}
	return i
}

// TestRopeAgainstTransformers compares with testdata/rope.json (made by
// testdata/rope.py). PyTorch's float32 pow, cos and sin are within one unit of
// the last place of the exact value and ours are rounded from float64, so two
// units may lie between inverse frequencies, and an angle p·f differs by as
// many units of its own last place.
func TestRopeAgainstTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/rope.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		HeadDim   int            `json:"head_dim"`
		Rope      map[string]any `json:"rope"`
		InvFreq   []uint32       `json:"inv_freq"`
		Positions []int          `json:"positions"`
		Cos, Sin  []uint32
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for i, tc := range cases {
		c, err := FromInline(map[string]any{"vocab_size": 10, "hidden_size": 64, "intermediate_size": 4,
			"num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": tc.HeadDim, "rope_parameters": tc.Rope}, "test")
		if err != nil {
			t.Fatal(err)
		}
		freq := c.RopeFrequencies()
		if len(freq) != len(tc.InvFreq) {
			t.Fatalf("case %d: %d frequencies, want %d", i, len(freq), len(tc.InvFreq))
		}
		exact := 0
		for j, f := range freq {
			want := math.Float32frombits(tc.InvFreq[j])
			if d := ulps(f, want); d > 2 {
				t.Errorf("case %d: frequency %d is %g, want %g (%d ulps)", i, j, f, want, d)
			} else if d == 0 {
				exact++
			}
		}
		t.Logf("case %d: %d of %d frequencies equal", i, exact, len(freq))
		cos, sin := c.RopeTables(tc.Positions[len(tc.Positions)-1] + 1)
		for k, p := range tc.Positions {
			for j, f := range freq {
				angle := float32(p) * f
				bound := 3 * float64(math.Nextafter32(angle, 1e9)-angle)
				bound += 2e-7 // one unit of the last place of a cosine, twice
				at := k*len(freq) + j
				wantCos, wantSin := math.Float32frombits(tc.Cos[at]), math.Float32frombits(tc.Sin[at])
				if d := math.Abs(float64(cos[p*len(freq)+j] - wantCos)); d > bound {
					t.Errorf("case %d: cos(%d, %d) off by %g", i, p, j, d)
				}
				if d := math.Abs(float64(sin[p*len(freq)+j] - wantSin)); d > bound {
					t.Errorf("case %d: sin(%d, %d) off by %g", i, p, j, d)
				}
			}
		}
	}
}
