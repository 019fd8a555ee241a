package doctor

import (
	"maps"
	"math"
	"testing"

	"mt/device"
	"mt/device/cpu"
	"mt/internal/run/machine"
	"mt/internal/run/predict"
	"mt/internal/run/trials"
	"mt/internal/testkit"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

func init() { machine.CPURateSize = 64 }

// TestMatch: wrong rates are corrected until the predicted times of a run's operations equal the measured ones. The
// rates of the other dtype, and of operations outside the run, do not change.
func TestMatch(t *testing.T) {
	cfg := testkit.Must(model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(64), "intermediate_size": int64(96), "num_hidden_layers": int64(2),
		"num_attention_heads": int64(2), "num_key_value_heads": int64(2), "vocab_size": int64(200), "max_position_embeddings": int64(32)}, "test"))(t)
	p := testkit.Must(trials.PlanSynthetic(trials.SyntheticOptions{Model: cfg, Rows: 4, SeqLen: 32, MicroTokens: 64, Recompute: "auto", Unified: true}))(t)
	machine := func(products, forward, backward, norm, rope float64) *rates.Machine {
		one := rates.Op{Rate: 10}
		return &rates.Machine{Device: rates.Device{Kind: "cpu", Unified: true, Bandwidth: 1000,
			Products:  map[string][]rates.Product{"fp32": {{M: 64, N: 64, K: 64, Rate: products}, {Rate: 2 * products}}, "bf16": {{Rate: 7}}},
			Attention: map[string][]rates.Attention{"fp32": {{Length: 32, Dim: 32, Forward: forward, Backward: backward}}},
			Ops:       map[string]rates.Op{"RMSNorm": {Fixed: 1 / norm, Rate: norm}, "RoPE": {Fixed: 2 / rope, Rate: rope}, "Router": {Fixed: 3, Rate: 3}}},
			Link: rates.Link{Up: 1, Down: 1, Both: 1}, Host: rates.Host{Cores: 2, Memory: 1, Bandwidth: 20, Update: one, Norm: one, Gather: one}, Disk: rates.Disk{Write: 1, Read: 1}}
	}
	truth := machine(0.04, 0.02, 0.05, 5, 2)
	times := testkit.Must(predict.PredictTimes(p, truth))(t)
	r := &calibration{o: CalibrateOptions{Device: newCPU(t, cpu.Options{Threads: 1})}, out: machine(0.08, 0.01, 0.07, 15, 2)}
	testkit.NoError(t, r.match(p, byOp(times), device.F32))
	d, want := r.out.Device, truth.Device
	near := func(what string, got, want float64) {
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	for i := range want.Products["fp32"] {
		near("products", d.Products["fp32"][i].Rate, want.Products["fp32"][i].Rate)
	}
	near("attention", d.Attention["fp32"][0].Forward, want.Attention["fp32"][0].Forward)
	near("its backward", d.Attention["fp32"][0].Backward, want.Attention["fp32"][0].Backward)
	for _, name := range []string{"RMSNorm", "RoPE"} {
		near(name, d.Ops[name].Rate, want.Ops[name].Rate)
		near(name+" at least", d.Ops[name].Fixed, want.Ops[name].Fixed)
	}
	if d.Products["bf16"][0].Rate != 7 || d.Ops["Router"] != want.Ops["Router"] {
		t.Errorf("what was not in the run is changed: %+v", d)
	}
	before := maps.Clone(d.Ops)
	r.slower("RMSNorm", device.BF16, 2)
	if !maps.Equal(before, d.Ops) {
		t.Error("a run in bf16 corrects operations that were measured in fp32")
	}
}

// TestMessageFor: a prediction with a known message time has certain stalls, and messageFor finds
// the time again from these stalls. restartFor does the same for the restart cost and the compute
// time.
func TestMessageFor(t *testing.T) {
	testkit.NotShort(t)
	cfg := testkit.Must(handing.model())(t)
	p := testkit.Must(trials.PlanSynthetic(trials.SyntheticOptions{Model: cfg, Rows: handing.rows, SeqLen: handing.length, MicroTokens: handing.micro, Recompute: "auto", NoClip: true,
		Depths: plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1}}))(t)
	one := rates.Op{Rate: 10}
	m := rates.Machine{Device: rates.Device{Kind: "cpu", Bandwidth: 10, Products: map[string][]rates.Product{"fp32": {{Rate: 0.1}}},
		Attention: map[string][]rates.Attention{"fp32": {{Length: 64, Dim: 32, Forward: 0.05, Backward: 0.05}}}},
		Link: rates.Link{Up: 5, Down: 5, Both: 8, Cores: 1}, Host: rates.Host{Cores: 2, Memory: 1, Bandwidth: 20, Update: one, Norm: one, Gather: one}, Disk: rates.Disk{Write: 1, Read: 1}}
	for _, us := range []float64{2, 25, 300} {
		m.Host.Message = us
		r := testkit.Must(predict.Predict(p, &m))(t)
		if got, err := messageFor(p, m, stalled(r.Report).Seconds()); err != nil || math.Abs(got/us-1) > 0.02 {
			t.Errorf("a message of %v µs is taken for one of %v: %v", us, got, err)
		}
	}
	m.Link.Up, m.Link.Down = 0.01, 0.01
	for _, us := range []float64{50, 400} {
		m.Device.Restart = us
		r := testkit.Must(predict.Predict(p, &m))(t)
		if got, err := restartFor(p, m, computing(r.Report).Seconds()); err != nil || math.Abs(got/us-1) > 0.02 {
			t.Errorf("a restart of %v µs is taken for one of %v: %v", us, got, err)
		}
	}
	if got, err := messageFor(p, m, 0); err != nil || got > 0.01 {
		t.Errorf("a run that does not stand still has messages of %v µs: %v", got, err)
	}
}
