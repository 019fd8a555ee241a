package bench

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mt/device"
	"mt/device/cpu"
	"mt/device/cpu/gemm"
	"mt/internal/run/machine"
	"mt/internal/run/trials"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// besideRates writes a file with the rates of a CPU that copies weights. They are round numbers, so
// predictions are easy to compute by hand.
func besideRates(t *testing.T) string {
	t.Helper()
	m := testkit.Must(rates.Find("h100"))(t)
	d, l, h := &m.Device, &m.Link, &m.Host
	d.Kind, d.Launch, d.Enqueue, d.Bandwidth = "cpu", 1, 2, 100
	d.Products = map[string][]rates.Product{"fp32": {{M: 64, N: 64, K: 64, TransB: true, Rate: 0.5}}}
	d.Attention = map[string][]rates.Attention{"fp32": {{Length: 32, Dim: 64, Forward: 0.25, Backward: 0.5}}}
	l.Up, l.Down, l.Both, l.Latency, l.Pin = 10, 20, 16, 4, 3
	h.Bandwidth, h.Update, h.Norm, h.Updates = 50, rates.Op{Fixed: 5, Rate: 40}, rates.Op{Rate: 60}, map[string]rates.Op{"lion": {Rate: 30}}
	file := filepath.Join(t.TempDir(), "rates.json")
	testkit.NoError(t, m.Save(file))
	return file
}

// predicts fails unless b has the prediction want, the measured value, and their ratio.
func predicts(t *testing.T, what string, b rates.Beside, want, measured float64) {
	t.Helper()
	if math.Abs(b.Predicted-want) > 1e-6*want || math.Abs(b.Measured-measured) > 1e-9*measured || want > 0 && b.Ratio != b.Measured/b.Predicted || want == 0 && b.Ratio != 0 {
		t.Errorf("%s: %+v, want %g beside %g", what, b, want, measured)
	}
}

// TestBeside: each figure of a benchmark has the prediction that follows from the rates for the
// same work.
func TestBeside(t *testing.T) {
	on := oneRun
	on.Rates = besideRates(t)
	const n = 1 << 16
	r, err := Copy(t.Context(), CopyOptions{OnDevice: on, Bytes: []int64{n}})
	testkit.NoError(t, err)
	if r.PredictedFor == "" || r.Unpredicted != "" {
		t.Errorf("%+v", r.Where)
	}
	seconds := map[string]float64{ // of n bytes, those that count twice as 2n
		"h2d registered": 4e-6 + n/10e9, "d2h pinned": 4e-6 + n/20e9, "h2d, both ways registered": 4e-6 + n/8e9, "d2d ": 1e-6 + 2*n/100e9, "host copy ": 2 * n / 50e9, "h2d pageable": 0}
	for _, row := range r.Rows {
		s, ok := seconds[row.What+" "+row.Memory]
		moved := float64(n)
		if strings.HasPrefix(row.What, "host copy") || row.What == "d2d" {
			moved *= 2
		}
		if ok {
			predicts(t, row.What, row.Beside, perSecond(moved/1e9, s), row.GBps.Median)
		}
		delete(seconds, row.What+" "+row.Memory)
		switch row.What {
		case "host norm of a fp32 gradient, split":
			predicts(t, row.What, row.Beside, 60, row.GBps.Median)
		case "host lion, split, fp32 gradient":
			predicts(t, row.What, row.Beside, 30, row.GBps.Median)
		case "host AdamW, split, fp32 gradient":
			if row.Predicted <= 0 || row.Predicted >= 40 {
				t.Errorf("%s: %+v, want less than 40 for what is fixed", row.What, row.Beside)
			}
		}
	}
	if len(seconds) > 0 {
		t.Errorf("no rows of %v", seconds)
	}
	predicts(t, "launch", r.Figures[1].Beside, 1, r.LaunchUS.Stream.Median)
	predicts(t, "enqueue", r.Figures[0].Beside, 2, r.LaunchUS.Enqueue.Median)
	p, err := MatMul(t.Context(), MatMulOptions{OnDevice: on, Squares: []int{64}})
	testkit.NoError(t, err)
	flops := 2 * math.Pow(64, 3)
	predicts(t, "product", p.Rows[0].Beside, flops/1e12/(1e-6+flops/0.5e12), p.Rows[0].TFLOPS.Median)
	var table strings.Builder
	testkit.NoError(t, p.WriteTable(&table))
	if known := strings.HasPrefix(gemm.Level(), "avx"); (p.PeakTFLOPS != nil) != known || (p.Rows[0].OfPeak != nil) != known || strings.Contains(table.String(), "peak of fused multiply-adds") != known {
		t.Errorf("%s: a peak of %v TFLOP/s\n%s", gemm.Level(), p.PeakTFLOPS, table.String())
	}
	a, err := Attention(t.Context(), AttentionOptions{OnDevice: on, Lengths: []int{32}, Dims: []int{64}, Width: 256, Groups: 4, Tokens: 32})
	testkit.NoError(t, err)
	flops = 5 * 32 * 33 * 256
	predicts(t, "attention, backward", a.Rows[1].Beside, flops/1e12/(1e-6+flops/0.5e12), a.Rows[1].TFLOPS.Median)
	// A dtype for which there are no rates gets no prediction.
	if p, err = MatMul(t.Context(), MatMulOptions{OnDevice: on, Squares: []int{16}, DTypes: []device.DType{device.BF16}}); err != nil {
		t.Fatal(err)
	}
	predicts(t, "product in bf16", p.Rows[0].Beside, 0, p.Rows[0].TFLOPS.Median)
}

// TestTrainBeside: a step and its operations have the times that a prediction of the same plan
// gives.
func TestTrainBeside(t *testing.T) {
	setup := TrainSetup{Shape: TrainShapes()["tiny"].With(TrainShape{Layers: 1, Rows: 2, SeqLen: 16}), Threads: 1, Warmup: 1, Rates: besideRates(t)}
	r := testkit.Must(Train(t.Context(), TrainOptions{TrainSetup: setup, Rounds: 1, Steps: 20, Rest: time.Nanosecond, Ours: NewOurs(trials.SyntheticOptions{Recompute: "auto", Profile: true})}))(t)
	d := r.Details
	if d.PredictedFor == "" || d.Unpredicted != "" {
		t.Errorf("predicted for %q, or not because %q", d.PredictedFor, d.Unpredicted)
	}
	figures := map[string]Figure{}
	for _, f := range d.Figures {
		figures[f.Name] = f
	}
	step := figures["step"]
	mean := 0.0
	for _, took := range r.StepSeconds.Ours {
		mean += took / float64(len(r.StepSeconds.Ours))
	}
	if step.Predicted <= 0 || step.Ratio <= 0 || math.Abs(step.Measured-mean) > 1e-9*mean {
		t.Errorf("step %+v, took %v", step, r.StepSeconds.Ours)
	}
	predicts(t, "tokens", figures["tokens"].Beside, 32/step.Predicted, 32/step.Measured)
	predicts(t, "device memory", figures["device memory, at most"].Beside, float64(d.Memory.Device)/gib, float64(d.DeviceBytes)/gib)
	if up := figures["host to device, over the step"]; up.Predicted <= 0 || up.Measured != d.H2DGBps {
		t.Errorf("%+v", up)
	}
	// The predicted step and the measured steps move the same bytes over the link.
	if moved := figures["host to device, over the step"]; math.Abs(moved.Predicted*step.Predicted-moved.Measured*step.Measured) > 0.1*moved.Measured*step.Measured { // random rows of the embedding; at the ends of the 20 steps tiles of the step before and after
		t.Errorf("%g GB are predicted, %g were copied", moved.Predicted*step.Predicted, moved.Measured*step.Measured)
	}
	operations := 0.0
	for _, o := range r.Profile {
		operations += o.Predicted
		if o.Predicted <= 0 || o.Ratio <= 0 || math.Abs(o.Measured-o.Total.Seconds()*1e3/float64(r.ProfileSteps)) > 1e-9 {
			t.Errorf("%s %s: %+v", o.Op, o.Shape, o.Beside)
		}
	}
	if s := 1e3 * step.Predicted; operations > s || operations < s/2 {
		t.Errorf("operations are predicted to take %g ms of a step of %g ms", operations, s)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "predicted for "+d.PredictedFor) {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestRatesOf: rates of another kind of device are an error. If there are no rates for a device,
// the reason is returned.
func TestRatesOf(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	defer dev.Close()
	if m, why, err := RatesOf("", dev); m != nil || err != nil || !strings.Contains(why, "--rates FILE takes what mt doctor --save measured") {
		t.Errorf("%v, %q, %v", m, why, err)
	}
	if _, _, err := RatesOf("h100", dev); err == nil || !strings.Contains(err.Error(), "has the rates of a cuda device, and cpu") {
		t.Error(err)
	}
	if _, _, err := RatesOf("h101", dev); err == nil || !strings.Contains(err.Error(), `no GPU is called "h101"`) {
		t.Error(err)
	}
	gpu := namedGPU{dev}
	if m, _, err := RatesOf("", gpu); !machine.Emulated() && (err != nil || m == nil || !strings.HasPrefix(m.Name, "h100-sxm+") || m.Host.Cores != cores()) {
		t.Errorf("%+v, %v", m, err)
	}
}

// namedGPU is the CPU device under the name of a GPU.
type namedGPU struct{ device.Device }

func (namedGPU) Name() string { return h100 }
func (namedGPU) Kind() string { return "cuda" }
