package model

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"testing"

	"mt/internal/testkit"
)

// ulps returns the distance of a and b in float32 units of the last place.
func ulps(a, b float32) int64 {
	return max(order(a), order(b)) - min(order(a), order(b))
}

// order maps float32 values to integers in the same order, so that neighbours differ by 1.
func order(x float32) int64 {
	i := int64(int32(math.Float32bits(x)))
	if i < 0 {
		i = math.MinInt32 - i
	}
	return i
}

// ropeCase is a case of testdata/rope.json: a config and the tables that Transformers computes for
// it. testdata/rope.py made the file.
type ropeCase struct {
	Config json.RawMessage
	Tables []struct {
		Length    int
		Sliding   bool
		InvFreq   []uint32 `json:"inv_freq"`
		Positions []int
		Cos, Sin  []uint32
	}
}

// TestRopeAgainstTransformers: RopeTables agrees with Transformers. PyTorch's float32 pow, cos and
// sin are within one unit of the last place of the exact value, and mt's are rounded from float64.
// So inverse frequencies may differ by two units, or by three if PyTorch multiplies afterwards. An
// angle p·f may differ by as many units of its own last place.
func TestRopeAgainstTransformers(t *testing.T) {
	raw := testkit.Must(os.ReadFile("testdata/rope.json"))(t)
	var cases []ropeCase
	testkit.NoError(t, json.Unmarshal(raw, &cases))
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for i, tc := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) { tc.compare(t) })
	}
}

func (tc ropeCase) compare(t *testing.T) {
	c := testkit.Must(ParseConfig(tc.Config, "config.json"))(t)
	longest := 0
	for _, want := range tc.Tables {
		longest = max(longest, want.Length)
	}
	cos, sin := c.RopeTables(longest)
	for _, want := range tc.Tables {
		rope, off := 0, 0
		if c.LocalRope != nil && want.Sliding {
			rope, off = 1, c.RopeRows(longest)*c.Rotary(0)/2
		}
		r := c.Ropes()[rope]
		if r.Type == "dynamic" && want.Length > c.MaxPositions && want.Length != longest {
			t.Fatal("only the longest document has a dynamic table")
		}
		freq := c.frequencies(r, want.Length)
		compareFrequencies(t, freq, want.InvFreq)
		for k, p := range want.Positions {
			at := off + (c.RopeShift(want.Length)+p)*len(freq)
			for j, f := range freq {
				angle := float32(p) * f
				bound := 4 * float64(math.Nextafter32(angle, 1e9)-angle)
				bound = (bound + 2e-7) * max(1, c.attentionFactor(r, want.Length)) // two units of the last place of a cosine
				theirs := k*len(freq) + j
				if d := math.Abs(float64(cos[at+j] - math.Float32frombits(want.Cos[theirs]))); !(d <= bound) {
					t.Errorf("cos(%d, %d) off by %g", p, j, d)
				}
				if d := math.Abs(float64(sin[at+j] - math.Float32frombits(want.Sin[theirs]))); !(d <= bound) {
					t.Errorf("sin(%d, %d) off by %g", p, j, d)
				}
			}
		}
	}
}

func compareFrequencies(t *testing.T, got []float32, want []uint32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frequencies, want %d", len(got), len(want))
	}
	for j, f := range got {
		if w := math.Float32frombits(want[j]); !(ulps(f, w) <= 3) {
			t.Errorf("frequency %d is %g, want %g (%d ulps)", j, f, w, ulps(f, w))
		}
	}
}

// TestRopeSections: a longrope table has one section for documents up to the original length and
// one for longer documents. RopeShift gives the section's first row.
func TestRopeSections(t *testing.T) {
	eights := []float64{1, 1, 1, 1, 1, 1, 1, 1}
	long := Rope{Type: "longrope", Theta: 1e4, OriginalMaxPositions: 10, ShortFactor: eights, LongFactor: eights}
	c := &Config{HeadDim: 16, MaxPositions: 30, Rope: long}
	for _, tc := range []struct{ longest, rows int }{{5, 5}, {10, 10}, {11, 21}, {40, 50}} {
		if got := c.RopeRows(tc.longest); got != tc.rows {
			t.Errorf("documents up to %d: %d rows, want %d", tc.longest, got, tc.rows)
		}
		if cos, _ := c.RopeTables(tc.longest); len(cos) != tc.rows*8 {
			t.Errorf("documents up to %d: %d elements, want %d rows of 8", tc.longest, len(cos), tc.rows)
		}
	}
	c.NumLayers, c.SlidingWindow, c.Sliding = 2, 4, []bool{true, false}
	c.LocalRope = &Rope{Type: "dynamic", Theta: 1e4, Factor: 2}
	var shifts []int
	for _, n := range []int{1, 10, 11, 30, 31, 99} {
		shifts = append(shifts, c.RopeShift(n))
	}
	if want := []int{0, 0, 10, 10, 40, 40}; !reflect.DeepEqual(shifts, want) {
		t.Errorf("shifts %v, want %v", shifts, want)
	}
	cos, sin := c.RopeTables(50)
	if want := 2 * (10 + 30 + 50) * 8; len(cos) != want || len(sin) != want || c.RopeElems(50) != int64(want) {
		t.Errorf("%d and %d elements, %d announced, want %d", len(cos), len(sin), c.RopeElems(50), want)
	}
	if c.RopeOf(0) != 1 || c.RopeOf(1) != 0 {
		t.Error("blocks have the wrong tables")
	}
}
