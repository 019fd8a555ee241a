package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"mt/actors"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// slowCPU returns invented rates of a machine with two cores.
func slowCPU() *rates.Machine {
	op := rates.Op{Fixed: 10, Rate: 10}
	return &rates.Machine{Name: "two cores", Device: rates.Device{Name: "cpu", Kind: "cpu", Bandwidth: 20, Launch: 1, Enqueue: 1,
		Products:  map[string][]rates.Product{"fp32": {{Rate: 0.2}}},
		Attention: map[string][]rates.Attention{"fp32": {{Length: 256, Dim: 64, Forward: 0.05, Backward: 0.05}}}},
		Link: rates.Link{Up: 10, Down: 10, Both: 15, Latency: 2, Cores: 1},
		Host: rates.Host{Cores: 2, Memory: 4, Bandwidth: 30, Update: op, Norm: op, Gather: op, Pack: 0.1, Message: 2}, Disk: rates.Disk{Write: 1, Read: 1}}
}

// TestDraw: equal seeds draw equal configurations. Throttled configurations are predicted to stall; others run at full
// speed.
func TestDraw(t *testing.T) {
	testkit.NotShort(t)
	m := slowCPU()
	for seed := range uint64(3) {
		one, two := rand.New(rand.NewPCG(seed, 12)), rand.New(rand.NewPCG(seed, 12))
		for i := range 4 {
			a := testkit.Must(draw(one, m, i%2 == 1))(t)
			b := testkit.Must(draw(two, m, i%2 == 1))(t)
			if a.row.Configuration != b.row.Configuration {
				t.Errorf("seed %d draws %s, then %s", seed, a.row.Configuration, b.row.Configuration)
			}
			r := testkit.Must(a.predict(m))(t)
			a.note(r)
			limits := a.o.Throttle
			if slow := limits.Link > 0 || limits.Updates > 0; slow != (i%2 == 1) || slow && (a.row.PredictedStall < stallWanted || a.o.Unified) {
				t.Errorf("%s: limits %+v, stalls %.2f", a.row.Configuration, limits, a.row.PredictedStall)
			}
			if m.Link.Up != 10 || m.Host.Update.Rate != 10 {
				t.Fatal("the machine itself was slowed down")
			}
		}
	}
}

// TestPredict: each configuration runs in each round. The machine's rates are measured before each
// round, and once more if its speed has changed meanwhile.
func TestPredict(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("trains for minutes under the race detector, which other tests of the engine run under")
	}
	asked := 0
	o := PredictOptions{Configurations: 2, Rounds: 2, Steps: 1, Only: -1, Rates: func(context.Context) (*rates.Machine, error) {
		asked++
		return slowCPU(), nil
	}}
	p := testkit.Must(Predict(t.Context(), o))(t)
	if asked < 2 || asked > 4 {
		t.Errorf("rates are asked for %d times, want 2 to 4", asked)
	}
	if len(p.Rows) != 2 {
		t.Fatalf("rows %+v, want 2", p.Rows)
	}
	testkit.Check(t, "the prediction",
		testkit.Is("first row is throttled", p.Rows[0].Throttled, false),
		testkit.Is("second row is throttled", p.Rows[1].Throttled, true),
		testkit.Is("machine", p.Machine, "two cores"),
	)
	for _, r := range p.Rows {
		if r.Measured.Min <= 0 || r.Predicted.Min <= 0 || math.IsNaN(r.Error) || math.Abs(r.Error) > p.Worst+1e-12 {
			t.Errorf("%+v", r)
		}
	}
	var text strings.Builder
	if err := p.WriteTable(&text); err != nil || !strings.Contains(text.String(), "median error") {
		t.Errorf("%v\n%s", err, text.String())
	}
	broken := errors.New("no rates")
	o.Rates = func(context.Context) (*rates.Machine, error) { return nil, broken }
	if _, err := Predict(t.Context(), o); !errors.Is(err, broken) {
		t.Errorf("without rates: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Rates = func(context.Context) (*rates.Machine, error) { return slowCPU(), nil }
	if _, err := Predict(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLargest(t *testing.T) {
	var stall [actors.NumCauses]float64
	if share, cause := largest(stall, 1); share != 0 || cause != "none" {
		t.Errorf("no stall: %g, %s", share, cause)
	}
	stall[actors.StallUpdate], stall[actors.StallData] = 0.03, 0.2
	if share, cause := largest(stall, 1); math.Abs(share-0.23) > 1e-12 || cause != "data" {
		t.Errorf("%g, %s", share, cause)
	}
	if _, cause := largest(stall, 10); cause != "none" {
		t.Errorf("a small stall counts: %s", cause)
	}
}
