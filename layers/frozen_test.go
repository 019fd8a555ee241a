package layers

import (
	"reflect"
	"regexp"
	"testing"

	"mt/device"
	"mt/internal/testkit"
	"mt/model"
)

// freezings returns variants of cfg for each parameter of layer l: one with this parameter frozen,
// and one with all others frozen.
func freezings(cfg *model.Config, l model.Layer) []*model.Config {
	var out []*model.Config
	freeze := func(frozen func(model.Role, int) bool) {
		c := *cfg
		for _, p := range l.Params {
			if frozen(p.Role, p.Part) {
				for _, s := range p.Stored {
					c.Freeze.Names = append(c.Freeze.Names, "^"+regexp.QuoteMeta(s.Name)+"$")
				}
			}
		}
		out = append(out, &c)
	}
	for _, p := range l.Params {
		freeze(func(r model.Role, part int) bool { return r == p.Role && part == p.Part })
		freeze(func(r model.Role, part int) bool { return r != p.Role || part != p.Part })
	}
	return out
}

// sameTrained checks that got has gradients of exactly the parameters that cfg trains. They must
// have the bits that they have in all, the gradients of a run without frozen parameters.
func sameTrained(t *testing.T, cfg *model.Config, got, all map[string][]float64) {
	t.Helper()
	frozen := map[string]bool{}
	for _, l := range cfg.Layers() {
		for _, p := range l.Params {
			for _, s := range p.Stored {
				frozen[s.Name] = p.Frozen
			}
		}
	}
	for name, want := range all {
		if g, ok := got[name]; ok == frozen[name] || ok && !reflect.DeepEqual(g, want) {
			t.Errorf("without gradients of %q: %s has one: %t, or it has other bits", cfg.Freeze.Names, name, ok)
		}
	}
	for name := range got {
		if all[name] == nil {
			t.Errorf("%s has a gradient where %q has none", name, cfg.Freeze.Names)
		}
	}
}

// TestFrozenLeavesTheRest: freezing one tensor of a layer, or all but one, changes no bit of the other gradients, in
// the layer and below it. This holds for every kind of block and for the head.
func TestFrozenLeavesTheRest(t *testing.T) {
	for _, c := range configs {
		t.Run(c.name, func(t *testing.T) {
			switch c.name {
			case "everything":
			case "plain", "gemma3", "sinks", "olmo2", "head with a bias", "latent", "latent of whole queries", "latent with biases and wide values", "output gate", "recurrent", "starcoder2":
				testkit.NotShort(t)
			default:
				testkit.LongOnly(t)
			}
			step := func(cfg *model.Config) map[string][]float64 {
				r := newRig(t, openCPU(t, 1), spec(cfg, KeepNothing, device.F32), nil)
				return r.step(r.batch(micro(cfg)...)).grads
			}
			all := step(c.cfg)
			for _, l := range c.cfg.Layers() {
				if len(l.Params) == 1 { // a layer that is frozen as a whole has no backward of its own
					continue
				}
				for _, cfg := range freezings(c.cfg, l) {
					sameTrained(t, cfg, step(cfg), all)
				}
			}
		})
	}
}

// TestFrozenExpertsLeaveTheRest: in layers with experts, freezing one parameter of the router or
// the experts (the shared one included), or all but one, changes no bit of the other gradients.
func TestFrozenExpertsLeaveTheRest(t *testing.T) {
	testkit.NotShort(t)
	for _, c := range moeCases {
		t.Run(c.name, func(t *testing.T) {
			step := func(cfg *model.Config) map[string][]float64 {
				of := c
				of.cfg = cfg
				_, grads := newMoERig(t, openCPU(t, 1), of, spec(cfg, KeepNothing, device.F32)).run()
				return grads
			}
			all := step(c.cfg)
			for _, l := range c.cfg.Layers() {
				if l.Kind != model.MoE {
					continue
				}
				for _, cfg := range freezings(c.cfg, l) {
					sameTrained(t, cfg, step(cfg), all)
				}
			}
		})
	}
}
