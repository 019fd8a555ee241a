package predict

import (
	"bytes"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// TestTravelIsFaster: a predicted step in which kept tensors travel is at least 2 % shorter than a step for which the
// host has no room for them, and never longer. With few blocks left to travel, the link would be late.
func TestTravelIsFaster(t *testing.T) {
	testkit.NotShort(t)
	for name, c := range map[string]struct {
		gpu          string
		blocks, rows int
		least        float64
	}{
		"H100":            {"h100", 28, 256, 0.02},
		"RTX 4090":        {"rtx4090", 28, 64, 0.015},
		"H200, 12 blocks": {"h200", 12, 128, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testkit.Must(rates.Find(c.gpu))(t)
			config := testkit.Must(model.Preset("qwen2.5-7b"))(t)
			config.NumLayers = c.blocks
			q := plan.Request{Config: config, Act: device.BF16, Rows: c.rows, RowTokens: 1024, Clip: true, Planes: optim.AdamW{}.Planes, Context: 512 << 20,
				DeviceMemory: int64(m.Device.Memory * (1 << 30)), HostMemory: 1 << 40}
			far := testkit.Must(plan.Resolve(q))(t)
			q.HostMemory = testkit.Must(SmallestFor(q))(t).Host + int64(c.blocks+2)*far.ActivationBytes(far.Limits.Tokens)
			near := testkit.Must(plan.Resolve(q))(t)
			if near.TravelWords() != "" || (c.least > 0) != (far.TravelWords() != "") {
				t.Fatalf("%q travels, with less host memory %q", far.TravelWords(), near.TravelWords())
			}
			a, b := testkit.Must(Predict(far, m))(t).Step().Seconds(), testkit.Must(Predict(near, m))(t).Step().Seconds()
			if t.Logf("%.4g s instead of %.4g: %s", a, b, far.TravelWords()); a > b*(1-c.least) {
				t.Errorf("a step takes %.4g s where %s travels, and %.4g s else", a, far.TravelWords(), b)
			}
		})
	}
}

// TestTravelIsShown: a plan's text names what travels, and what that spares on the machine.
func TestTravelIsShown(t *testing.T) {
	o := Outlook{prediction: &Predicted{}, recommended: &recommendation{}, smallest: &Smallest{}}
	for _, o.spared = range []float64{0, 1.25} {
		var out bytes.Buffer
		testkit.NoError(t, o.write(&out))
		if strings.Contains(out.String(), "spared    1.25 s  at least, of computing again what waits on the host") != (o.spared > 0) || strings.Contains(out.String(), "spared") != (o.spared > 0) {
			t.Errorf("%g s are spared:\n%s", o.spared, out.String())
		}
	}
}
