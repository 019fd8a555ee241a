package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestCurve: the chart of metrics.jsonl has every logged training loss, every held-out loss and
// every learning rate. Many losses also get a smoothed line.
func TestCurve(t *testing.T) {
	c, ok := curve([]byte(`{"step":1,"loss":4.5,"lr":0.1}
{"step":2,"loss":null,"lr":0.2}
{"step":2,"eval_loss":4.25,"eval_tokens":3}
{"step":3,"loss":3.5,"lr":0.3}
{"step":4,"eval_lo`))
	if !ok || len(c.Panels) != 2 || len(c.Panels[0].Series) != 2 {
		t.Fatalf("%+v", c)
	}
	train, held, rate := c.Panels[0].Series[0], c.Panels[0].Series[1], c.Panels[1].Series[0]
	if !slices.Equal(train.X, []float64{1, 2, 3}) || train.Y[0] != 4.5 || !math.IsNaN(train.Y[1]) || train.Y[2] != 3.5 {
		t.Errorf("training: %v %v", train.X, train.Y)
	}
	if !slices.Equal(held.X, []float64{2}) || !slices.Equal(held.Y, []float64{4.25}) || !slices.Equal(rate.Y, []float64{0.1, 0.2, 0.3}) {
		t.Errorf("held out: %v %v, rate %v", held.X, held.Y, rate.Y)
	}
	if _, ok := curve([]byte(`{"step":2,"eval_loss":4.25}`)); ok {
		t.Error("there is a picture of no steps")
	}
	var many bytes.Buffer
	for i := range smoothedFrom {
		fmt.Fprintf(&many, "{\"step\":%d,\"loss\":%d,\"lr\":0}\n", i, i%2)
	}
	if got := smooth([]float64{1, 2, 3, 4, 5}, 0.5); math.Abs(got[2]-3) > 1e-12 {
		t.Errorf("a straight line is smoothed to %v", got)
	}
	if c, _ := curve(many.Bytes()); len(c.Panels[0].Series) != 2 || math.Abs(c.Panels[0].Series[1].Y[smoothedFrom/2]-0.5) > 0.2 {
		t.Errorf("smoothed: %+v", c.Panels[0].Series)
	}
}

// TestTrail: a lossHistory of a long run consists of means that cover all its steps.
func TestTrail(t *testing.T) {
	var r lossHistory
	if r.add(5); r.spark() != "" {
		t.Error("one loss makes a line")
	}
	r.add(math.NaN())
	const n = 10_000
	for i := 1; i < n; i++ {
		r.add(float64(i))
	}
	if len(r.means) >= maxLossHistory || len(r.means) < maxLossHistory/2 || r.per*len(r.means)+r.n != n {
		t.Errorf("%d means of %d steps, %d left", len(r.means), r.per, r.n)
	}
	if !slices.IsSorted(r.means) || r.spark() != "▁▂▂▃▄▄▅▅▆▇▇█" {
		t.Errorf("%q", r.spark())
	}
}
