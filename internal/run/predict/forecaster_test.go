package predict

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/actors"
	"mt/device"
	"mt/host/optim"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// toyRequest returns a request for a small model on machine m.
func toyRequest(t *testing.T) (plan.Request, *rates.Machine) {
	config := testkit.Must(model.Preset("quickstart"))(t)
	return plan.Request{Config: config, Act: device.BF16, Order: schedule.Lanes, Devices: 1, Rows: 8, RowTokens: 256, Clip: true,
		Planes: optim.AdamW{}.Planes, DeviceMemory: 8 << 30, HostMemory: 64 << 30}, testkit.Must(rates.Find("rtx4090"))(t)
}

// TestRecommends: the recommended batch and depths are those that follow from predicting every variant to its end. Slow
// links make deeper buffers help and small batches slow. On a slow device small batches are as fast as large ones.
func TestRecommends(t *testing.T) {
	gained, least := 0, 1<<30
	for _, slower := range []float64{1, 30, 300} {
		q, m := toyRequest(t)
		if slower == 1 {
			m.Device.Products = map[string][]rates.Product{"bf16": {{Rate: 0.1}}}
		}
		m = m.Changed(func(_ *rates.Device, l *rates.Link) { l.Up, l.Down, l.Both = l.Up/slower, l.Down/slower, l.Both/slower })
		q.Depths.GradBuffers, q.Depths.WeightSlots = 1, 1
		now := describe(m, testkit.Must(Predict(testkit.Must(plan.Resolve(q))(t), m))(t))
		got := testkit.Must(newForecaster(t.Context(), m, settings.Options{}).recommend(q, now))(t)
		whole := func(variants []variant) []Swept {
			return testkit.Must(newForecaster(t.Context(), m, settings.Options{}).tryAll(variants, m, 0, 0))(t)
		}
		tried := whole(batches(q))
		rate := func(s Swept) float64 { return s.Predicted.TokensPerSecond }
		best := rate(slices.MaxFunc(tried, func(a, b Swept) int { return cmp.Compare(rate(a), rate(b)) }))
		rows := tried[slices.IndexFunc(tried, func(s Swept) bool { return rate(s) >= closeEnough*best })].Rows
		least = min(least, rows)
		gain := 0.0
		for _, s := range whole(depths(q, actors.StallWeights, actors.StallGradBuffer, actors.StallActivation)) {
			if s.Predicted != nil {
				gain = max(gain, s.Predicted.TokensPerSecond/now.TokensPerSecond-1)
			}
		}
		if gain <= worthIt {
			gain = 0
		} else {
			gained++
		}
		if got.Rows != rows || got.Gain != gain || (gain > 0) != (got.Depths != nil) {
			t.Errorf("links %v times slower: %d rows and a gain of %v, want %d and %v", slower, got.Rows, got.Gain, rows, gain)
		}
	}
	if gained == 0 || least > 2 {
		t.Errorf("deeper buffers help %d times, and the smallest recommended batch has %d rows", gained, least)
	}
}

// TestSamePlansArePredictedOnce: a plan that was predicted before, or stands twice in a table, is not predicted again,
// and its line has the same prediction.
func TestSamePlansArePredictedOnce(t *testing.T) {
	q, m := toyRequest(t)
	f := newForecaster(t.Context(), m, settings.Options{})
	deeper := q
	deeper.Depths.GradBuffers = 3
	first := testkit.Must(f.tryAll([]variant{{"a", q}, {"b", q}, {"c", deeper}}, m, 0, 0))(t)
	again := testkit.Must(f.tryAll([]variant{{"d", deeper}}, m, 0, 0))(t)
	if first[0].Predicted != first[1].Predicted || first[2].Predicted != again[0].Predicted || first[0].Predicted == first[2].Predicted || len(f.made) != 2 {
		t.Errorf("%d predictions for two plans: %+v, %+v", len(f.made), first, again)
	}
}

// TestForecastEnds: a prediction in progress ends soon after its context is cancelled, and so does a table.
func TestForecastEnds(t *testing.T) {
	q, m := toyRequest(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := testkit.Must(plan.Resolve(q))(t)
	how := Predicting{Batch: FullBatch(r), wrap: func(d device.Device) device.Device { cancel(); return d }}
	if p, err := how.Predict(ctx, r, m); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled prediction: %v, %v", p, err)
	}
	if s, err := newForecaster(ctx, m, settings.Options{}).tryAll(batches(q), m, 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled table: %v, %v", s, err)
	}
}

// TestForecastShowsProgress: after two seconds a terminal shows every second how many plans are predicted, and how long
// the rest will take. Elsewhere a line comes every 30 seconds. The end shows nothing.
func TestForecastShowsProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		f := newForecaster(t.Context(), nil, settings.Options{Stderr: &out, Interactive: terminal})
		at := f.begun
		f.now, f.of = func() time.Time { return at }, 50
		for range 50 {
			at = at.Add(1500 * time.Millisecond)
			f.tell(1)
		}
		first, shown := "predicting: 20 of 50 plans  ETA 45s\n", 2
		if terminal {
			first, shown = "\rpredicting: 2 of 50 plans  ETA 1m12s", 48
		}
		if n := strings.Count(out.String(), "predicting"); !strings.HasPrefix(out.String(), first) || n != shown {
			t.Errorf("terminal %t: %d lines, want %d, and first %q:\n%s", terminal, n, shown, first, out.String())
		}
	}
}
