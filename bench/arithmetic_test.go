package bench

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"mt/actors"
	"mt/data/tokenizer"
	"mt/device/cpu/openblas"
	"mt/internal/testkit"
)

// seconds turns numbers of seconds into durations.
func seconds(of ...float64) []time.Duration {
	out := make([]time.Duration, len(of))
	for i, s := range of {
		out[i] = time.Duration(s * float64(time.Second))
	}
	return out
}

// The expected figures in this file are computed by hand from invented times.

func TestAdamWRates(t *testing.T) {
	row := AdamWRow{Grad: "fp32"}
	row.rates(1e9, 12, seconds(2, 4), seconds(1, 1), seconds(0.5, 0.5))
	// An update moves 28 bytes per parameter: 28 GB in 2 and in 4 s. The copy moves 8 GB in 1 s,
	// and the norm reads 4 GB in half a second.
	want := AdamWRow{Grad: "fp32", BytesParam: 28, AdamW: Sample{10.5, 7, 14}, Copy: Sample{8, 8, 8},
		Ratio: Sample{1.3125, 0.875, 1.75}, Norm: Sample{8, 8, 8}}
	if row != want {
		t.Errorf("fp32 gradients: %+v, want %+v", row, want)
	}
	row = AdamWRow{Grad: "bf16"}
	row.rates(1e9, 12, seconds(2), seconds(2), seconds(1))
	want = AdamWRow{Grad: "bf16", BytesParam: 26, AdamW: Sample{13, 13, 13}, Copy: Sample{4, 4, 4},
		Ratio: Sample{3.25, 3.25, 3.25}, Norm: Sample{2, 2, 2}}
	if row != want {
		t.Errorf("bf16 gradients: %+v, want %+v", row, want)
	}
}

func TestSGEMMRates(t *testing.T) {
	p := openblas.Product{M: 1000, N: 500, K: 2000}
	if got := p.FLOPs(); got != 2e9 {
		t.Errorf("a product of 1000 by 500 by 2000 takes %g operations, want 2e9", got)
	}
	row := SGEMMShape{Name: "x"}.row(2e9, [][]time.Duration{seconds(0.5, 1), seconds(1, 4)}, []float64{8, 2.5})
	if *row.OfPeak != (Sample{0.65, 0.5, 0.8}) || *row.PeerOfPeak != (Sample{0.225, 0.2, 0.25}) {
		t.Errorf("shares of the peak %v, peer %v", row.OfPeak, row.PeerOfPeak)
	}
	if row.Name != "x" || row.Ours != (Sample{3, 2, 4}) || *row.Peer != (Sample{1.25, 0.5, 2}) || *row.Ratio != (Sample{3, 2, 4}) {
		t.Errorf("%+v, peer %v, ratio %v", row, row.Peer, row.Ratio)
	}
	if got := row.OfPeak.orDash(); got != "0.65 [0.50–0.80]" {
		t.Errorf("the share of the peak is printed as %s", got)
	}
	if row := (SGEMMShape{}).row(2e9, [][]time.Duration{seconds(1)}, nil); row.Peer != nil || row.Ratio != nil || row.OfPeak.orDash() != "-" {
		t.Errorf("without a peer: %v, ratio %v", row.Peer, row.Ratio)
	}
}

func TestSumsOfSteps(t *testing.T) {
	var s sums
	s.add(actors.StepReport{Elapsed: time.Second, H2D: 3e9, D2H: 1e9}, 2e12, 3e12)
	s.add(actors.StepReport{Elapsed: 3 * time.Second, H2D: 3e9, D2H: 1e9}, 2e12, 3e12)
	got, want := s.rates(), Details{TFLOPS: 1, TFLOPSExecuted: 1.5, H2DGBps: 1.5, D2HGBps: 0.5}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPipelineSample(t *testing.T) {
	var p PipelineSample
	for range 2 {
		r := actors.StepReport{Compute: 4 * time.Second}
		r.Stall[actors.StallWeights], r.Stall[actors.StallUpdate] = time.Second, 500*time.Millisecond
		p.add(r)
	}
	if p.ComputeS != 8 || p.Share != 3.0/8 || p.StallS[actors.StallWeights.String()] != 2 || p.StallS[actors.StallUpdate.String()] != 1 {
		t.Errorf("%+v, want 2 and 1 of 8 s", p)
	}
}

func TestTokenizerRates(t *testing.T) {
	p := testkit.Must(startPeer(t.Context(), fakePython(t, `
echo '{"ready": true}'
while read word; do echo '{"seconds": [0.25], "tokens": 7}'; done
`), "nothing"))(t)
	r := TokenizerReport{Bytes: 3e6, Rounds: 1}
	e := &encoding{t: tokenizer.Bytes(), docs: [][]byte{[]byte("some text")}}
	testkit.NoError(t, r.rounds(t.Context(), e, p))
	if *r.Peer != (Sample{12, 12, 12}) || r.Ratio.Median != r.Ours.Median/12 {
		t.Errorf("3 MB in a quarter of a second: %v; ours %v, ratio %v", r.Peer, r.Ours, r.Ratio)
	}
	if got := r.rate(2); got != 1.5 {
		t.Errorf("3 MB in 2 s are %g MB/s", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// counted is a runner that reports the number of its model's parameters, and nothing else.
type counted struct {
	scripted
	parameters int64
}

func (c *counted) Parameters() int64 { return c.parameters }

func TestTrainWantsTheSameModel(t *testing.T) {
	for theirs, want := range map[int64]string{10: "", 12: "mt trains 10 parameters and b 12"} {
		var log []string
		_, err := Train(t.Context(), TrainOptions{Rounds: 1, Steps: 1, Rest: time.Nanosecond, PeerName: "b",
			Ours: ready(&counted{scripted{name: "a", log: &log, tokens: 1, times: []float64{1}}, 10}, nil),
			Peer: ready(&counted{scripted{name: "b", log: &log, tokens: 1, times: []float64{1}}, theirs}, nil)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d parameters: %v, want %q", theirs, err, want)
		}
	}
}
