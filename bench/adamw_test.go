package bench

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

func TestAdamWReportsEveryKind(t *testing.T) {
	r := testkit.Must(AdamW(AdamWOptions{Params: 1 << 16, Rounds: 2, Threads: []int{1, 3}}))(t)
	var kinds []string
	for _, row := range r.Rows {
		kinds = append(kinds, row.Planes+" "+row.Grad)
		for _, s := range []Sample{row.AdamW, row.Copy, row.Ratio, row.Norm} {
			if !(s.Min > 0 && s.Min <= s.Median && s.Median <= s.Max && !math.IsInf(s.Max, 0)) {
				t.Errorf("%s %s, %d threads: %+v", row.Planes, row.Grad, row.Threads, s)
			}
		}
	}
	want := []string{"fp32 fp32", "fp32 fp32", "split fp32", "split bf16", "split fp32", "split bf16"}
	if !slices.Equal(kinds, want) || r.Rows[0].BytesParam != 28 || r.Rows[3].BytesParam != 26 || r.Rows[1].Threads != 3 {
		t.Errorf("rows %+v", r.Rows)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || strings.Count(table.String(), "\n") != 2+len(want) {
		t.Errorf("table %v\n%s", err, table.String())
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"adamw_over_copy":{"median":`) {
		t.Errorf("JSON %v %s", err, b)
	}
}

func TestAdamWRefusesNothingToMeasure(t *testing.T) {
	for _, o := range []AdamWOptions{{Params: 10}, {Rounds: -1}, {Threads: []int{1, 0}}} {
		if _, err := AdamW(o); err == nil {
			t.Errorf("no error for %+v", o)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want || !slices.Equal(before, c.values) {
			t.Errorf("Median(%v) = %v, want %v, and left %v", before, got, c.want, c.values)
		}
	}
	if got := Summarize([]float64{4, 1, 3}); got != (Sample{Median: 3, Min: 1, Max: 4}) {
		t.Errorf("Summarize: %+v", got)
	}
}

func TestAlternateTakesTurns(t *testing.T) {
	var order strings.Builder
	turn := func(name string) func() { return func() { order.WriteString(name) } }
	took := Alternate(2, turn("a"), turn("b"), turn("c"))
	if order.String() != "abc"+"bca"+"cab" {
		t.Errorf("order %s", order.String())
	}
	for i, times := range took {
		if len(times) != 2 {
			t.Errorf("contestant %d has %d times", i, len(times))
		}
	}
}

func TestRatios(t *testing.T) {
	speeds := Rates(6, []time.Duration{2 * time.Second, 500 * time.Millisecond})
	if !slices.Equal(speeds, []float64{3, 12}) || !slices.Equal(Ratios(speeds, []float64{6, 3}), []float64{0.5, 4}) {
		t.Errorf("rates %v, ratios %v", speeds, Ratios(speeds, []float64{6, 3}))
	}
}
