package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
	"mt/plan/rates"
)

func TestParseThrottle(t *testing.T) {
	for text, want := range map[string]Throttle{"": {}, "link=400MB/s": {Link: 4e8}, " updates=2GB/s  link=1GiB ": {Link: 1 << 30, Updates: 2e9}} {
		if got, err := parseThrottle(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"link", "link=", "link=0", "link=fast", "disk=1GB/s", "link=-1GB"} {
		if _, err := parseThrottle(text); err == nil || !strings.Contains(err.Error(), strings.Fields(text)[0]) {
			t.Errorf("%q: %v", text, err)
		}
	}
	t.Setenv(ThrottleVariable, "link=soon")
	if _, err := ThrottleFromEnv(); err == nil || !strings.HasPrefix(err.Error(), ThrottleVariable) {
		t.Errorf("in the environment: %v", err)
	}
}

// TestOptimizer: a throttled update takes as long as moving its bytes at the limit, and computes
// the same bits.
func TestOptimizer(t *testing.T) {
	layer := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{{Role: model.RoleDown, Rows: 64, Cols: 64, Dims: 2}}}, false, model.Param{})
	update := func(l Throttle) ([]byte, time.Duration) {
		o := l.Optimizer(optim.AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8})
		planes := []optim.State{}
		for _, p := range optim.Planes(o.Planes).Of(layer) {
			planes = append(planes, optim.State{Placed: p, Data: make([]byte, 4*layer.Elems)})
		}
		tile, grad := make([]byte, layer.TileBytes), make([]byte, 4*layer.Elems)
		for i := range grad {
			grad[i] = byte(i % 60)
		}
		began := time.Now()
		at := o.At(optim.Rate{LR: 0.1, Step: 1, Clip: 1})
		for _, u := range o.Units(layer) {
			at.Step(u, optim.Weight{Layout: &layer, Tile: tile}, planes, optim.Grad{Data: grad, Elems: layer.Elems})
		}
		took := time.Since(began)
		if u, ok := at.(*slowUpdate); ok && u.moved.Load() != 28*layer.Elems {
			t.Errorf("%d bytes were moved, want 28 an element of %d", u.moved.Load(), layer.Elems)
		}
		return tile, took
	}
	fast, _ := update(Throttle{})
	slow, took := update(Throttle{Updates: 28 * 64 * 64 * 50}) // 28 bytes an element, in 20 ms
	if !slices.Equal(fast, slow) {
		t.Error("a slow update has another result")
	}
	if took < 20*time.Millisecond {
		t.Errorf("a slow update took %v", took)
	}
	if o := (optim.AdamW{}); (Throttle{Link: 1}).Optimizer(o) != optim.Optimizer(o) {
		t.Error("an optimizer without a limit is another one")
	}
}

// TestMachine: rates are capped at the throttle's limits, and the number of busy cores falls in proportion.
func TestMachine(t *testing.T) {
	link := rates.Link{Up: 10, Down: 5, Peer: 8, Cores: 1}
	m := &rates.Machine{Link: link, More: []rates.Card{{Link: link}}, Host: rates.Host{Cores: 4, Update: rates.Op{Rate: 20}}}
	got := Throttle{Link: 5e9, Updates: 5e9}.Machine(m)
	for i, l := range []rates.Link{got.Link, got.On(1).Link} {
		testkit.Check(t, fmt.Sprintf("device %d", i),
			testkit.Is("up", l.Up, 5),
			testkit.Is("down", l.Down, 5),
			testkit.Is("peer", l.Peer, 5),
			testkit.Is("cores", l.Cores, 1),
		)
	}
	testkit.Check(t, "the host",
		testkit.Is("update rate", got.Host.Update.Rate, 5),
		testkit.Is("update cores", got.Host.Update.Cores, 1),
		testkit.Is("rate of the machine given", m.More[0].Link.Up, 10),
	)
	if got := (Throttle{}).Machine(m); got.Link.Up != 10 || got.Host.Update.Rate != 20 || m.Host.Update.Cores != 0 {
		t.Errorf("without limits: %+v", got)
	}
	if l := (Throttle{Link: 4e9}).Machine(&rates.Machine{Link: rates.Link{Up: 8, Down: 5, Peer: 5, Cores: 1}}).Link; l.Cores != 0.8 {
		t.Errorf("copies at half and at 0.8 of the rate take %g cores, want the more of both, 0.8", l.Cores)
	}
}
