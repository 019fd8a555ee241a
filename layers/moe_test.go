package layers

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"mt/device"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/layers/schedule"
	"mt/model"
)

// moeCase is a MoE layer to test, with inputs for which its router makes a certain choice, such as
// never choosing some experts.
type moeCase struct {
	name   string
	cfg    *model.Config
	favour []float64 // what is added to the logits of the first experts
	idle   int       // experts that get no token
}

func moeConfig(experts, chosen int, edit func(c *model.Config)) *model.Config {
	return config(func(c *model.Config) {
		c.NumLayers, c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize = 1, experts, chosen, 7
		c.DecoderSparseStep, c.RouterAuxLossCoef = 1, 0.5
		edit(c)
	})
}

var moeCases = []moeCase{
	{"plain", moeConfig(5, 2, func(*model.Config) {}), nil, 0},
	{"normalised", moeConfig(5, 2, func(c *model.Config) { c.NormTopKProb = true }), nil, 0},
	{"auxiliary loss", moeConfig(6, 2, func(c *model.Config) { c.OutputRouterLogits = true }), nil, 0},
	{"all chosen", moeConfig(3, 3, func(c *model.Config) { c.NormTopKProb, c.OutputRouterLogits = true, true }), nil, 0},
	{"one expert", moeConfig(1, 1, func(c *model.Config) { c.NormTopKProb = true }), nil, 0},
	{"idle experts", moeConfig(7, 2, func(c *model.Config) { c.OutputRouterLogits = true }), []float64{-20, 0, -20, 0, 0, -20, -20}, 4},
	{"all tokens to one", moeConfig(4, 1, func(c *model.Config) { c.OutputRouterLogits = true }), []float64{0, 0, 4}, 3},
	{"shared", moeConfig(5, 2, func(c *model.Config) { c.SharedSize, c.OutputRouterLogits = 11, true }), nil, 0},
	{"shared with a gate", moeConfig(5, 2, func(c *model.Config) { c.SharedSize, c.SharedGate, c.OutputRouterLogits = 5, true, true }), nil, 0},
	{"sigmoids", moeConfig(7, 2, sigmoids(0)), nil, 1},
	{"sigmoids in groups", moeConfig(8, 3, sigmoids(4)), []float64{-9, -9}, 2},
	{"weighted inputs", moeConfig(7, 2, func(c *model.Config) {
		c.WeightedInputs, c.SigmoidScores, c.SharedSize = true, true, 11
	}), []float64{-20, 0, 0, 0, -20}, 2},
	{"near", moeConfig(6, 2, func(c *model.Config) {
		c.SparseMixer, c.LayerNorm, c.NormBias, c.OutputRouterLogits = 0.3, true, true, true
	}), nil, 0},
	{"biases", moeConfig(5, 2, func(c *model.Config) {
		c.RouterBias, c.ExpertBias, c.OutputRouterLogits, c.ClampedSwiGLU = true, true, true, &model.ClampedSwiGLU{Alpha: 1.7, Limit: 0.6}
	}), nil, 0},
	{"biases of idle experts", moeConfig(7, 2, func(c *model.Config) { c.ExpertBias = true }), []float64{-20, 0, -20, 0, 0, -20, -20}, 4},
	{"biases of the shared expert", moeConfig(3, 3, func(c *model.Config) { c.SharedSize, c.SharedBias = 11, true }), nil, 0},
	{"biases of a gated shared expert", moeConfig(4, 2, func(c *model.Config) {
		c.SharedSize, c.SharedGate, c.SharedBias, c.Activation = 5, true, true, model.GELUTanh
	}), nil, 0},
	{"biases of all experts", moeConfig(4, 4, func(c *model.Config) { c.SharedSize, c.SharedBias, c.ExpertBias = 6, true, true }), nil, 0},
	{"softmax in groups", moeConfig(12, 3, func(c *model.Config) { c.ExpertGroups, c.OpenGroups, c.GroupBest, c.NormTopKProb = 4, 2, 2, true }), nil, 2},
	{"ungated", moeConfig(5, 2, func(c *model.Config) { c.Ungated, c.Activation, c.SharedSize = true, model.SquaredReLU, 7 }), nil, 0},
	{"ungated with biases", moeConfig(4, 2, func(c *model.Config) {
		c.Ungated, c.Activation, c.SharedSize, c.SharedBias, c.ExpertBias = true, model.GELU, 7, true, true
	}), nil, 0},
	{"beside a dense MLP", moeConfig(6, 2, func(c *model.Config) {
		c.DenseBesideExperts, c.NormTopKProb, c.SandwichNorms, c.LayerScalar, c.Activation = true, true, true, true, model.GELUTanh
	}), nil, 0},
	{"normed", moeConfig(5, 2, func(c *model.Config) {
		c.SandwichNorms, c.SigmoidScores, c.ChoiceBias, c.NormTopKProb, c.RoutedScale, c.SharedSize = true, true, true, true, 1.5, 11
	}), nil, 1},
	{"normed, idle", moeConfig(7, 2, func(c *model.Config) { c.SandwichNorms, c.OutputRouterLogits = true, true }), []float64{-20, 0, -20, 0, 0, -20, -20}, 4},
	{"beside a dense MLP, idle", moeConfig(7, 3, func(c *model.Config) {
		c.DenseBesideExperts, c.NormTopKProb, c.SandwichNorms = true, true, true
	}), []float64{-90, 0, -90}, 2},
	{"gelu, offset", moeConfig(4, 2, func(c *model.Config) { c.Activation, c.NormOffset = model.GELUTanh, 1 }), nil, 0},
}

// sigmoids returns a change to a configuration: the router of DeepSeek-V3, which scores experts by
// sigmoids, with this number of groups of experts.
func sigmoids(groups int) func(c *model.Config) {
	return func(c *model.Config) {
		c.SigmoidScores, c.ChoiceBias, c.NormTopKProb, c.RoutedScale, c.SharedSize, c.SharedGate = true, true, true, 2.5, 7, false
		if groups > 0 {
			c.ExpertGroups, c.OpenGroups, c.GroupBest = groups, 2, 2
		}
	}
}

func onMoE(t *testing.T, f func(t *testing.T, c moeCase, r *moeRig)) {
	for _, d := range devices {
		for i, c := range moeCases {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				switch {
				case d.name == "toy" && i > 0:
					testkit.LongOnly(t)
				case i > 0:
					testkit.NotShort(t)
				}
				f(t, c, newMoERig(t, d.open(t), c, spec(c.cfg, KeepNothing, device.F32)))
			})
		}
	}
}

// TestMoEGradients: a MoE layer's outputs equal those of the reference in float64, and all
// gradients equal the finite differences of the reference's loss.
func TestMoEGradients(t *testing.T) {
	onMoE(t, func(t *testing.T, c moeCase, r *moeRig) {
		y, grads := r.run()
		x := slices.Concat(r.x...)
		// The bound allows for some ten roundings in fp32.
		if d := distance(y, reference.MoE(c.cfg, r.ref, 0, x, nil)); !(d <= 1e-6) {
			t.Errorf("outputs differ by %g", d)
		}
		_, chosen := r.loss(x)
		loss := func() float64 {
			l, now := r.loss(x)
			if !slices.Equal(now, chosen) {
				t.Fatal("other experts are chosen: differences say nothing")
			}
			return l
		}
		values, idle := maps.Clone(r.ref), 0
		values["x"] = x
		if c.cfg.ChoiceBias { // where another expert is chosen, outputs jump
			delete(values, "model.layers.0.mlp.gate.e_score_correction_bias")
		}
		delete(values, "model.layers.0.layer_scalar") // never trained
		if len(grads) != len(values) {
			t.Errorf("%d gradients of %d tensors", len(grads), len(values))
		}
		rng := rand.New(rand.NewPCG(5, 6))
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if slices.Max(grads[name]) == 0 && slices.Min(grads[name]) == 0 {
				idle++
			}
			for _, dir := range directions(rng, len(values[name])) {
				want := reference.Derivative(func(s float64) float64 { return reference.Perturbed(loss, values[name], dir, s) })
				checkGradient(t, name, grads[name], dir, want)
			}
		}
		if c.cfg.NumExperts == 1 { // its weight is always 1
			idle--
		}
		tensors := 3 // of an expert
		if c.cfg.ExpertBias {
			tensors = 6
		}
		if idle != tensors*c.idle {
			t.Errorf("%d gradients are 0, want those of %d experts", idle, c.idle)
		}
	})
}

// TestMoERouteAgain: the backward, which computes the routing again, gets the same bits as the
// forward.
func TestMoERouteAgain(t *testing.T) {
	onMoE(t, func(t *testing.T, c moeCase, r *moeRig) {
		st, ws := r.state(true), r.alloc(r.spec.WorkspaceBytes())
		r.forward(st, ws, false)
		route := []device.Tensor{st.N, st.Logits, st.IDs, st.Weights, st.Order, st.Rows, st.Offsets, st.Counts, st.ProbSum}
		var before [][]byte
		for _, v := range route {
			before = append(before, r.read(v.Mem()))
		}
		for _, v := range route[:7] {
			r.s.Zero(v.Mem())
		}
		for i, x := range r.xs {
			r.tpl.MoERouteAgain(r.s, r.parts[0], OnDevice(x), OnDevice(x), r.at(i), r.mb(i), st, r.saved[i], ws)
		}
		r.tpl.MoESort(r.s, st, r.total(), false)
		for i, v := range route {
			if !slices.Equal(r.read(v.Mem()), before[i]) {
				t.Errorf("tensor %d of the routing has other bits", i)
			}
		}
		if got := r.get(st.DY); !c.cfg.NormsExperts() && !slices.Equal(got, slices.Concat(r.x...)) {
			t.Error("DY is not what was given")
		}
		if got := r.get(st.Sum); slices.Max(got) != 0 || slices.Min(got) != 0 {
			t.Error("Sum is not cleared")
		}
	})
}

// TestMoECounts: training adds the experts' counts and probabilities of each layer to those of
// earlier layers. An evaluation adds none and gives the same outputs.
func TestMoECounts(t *testing.T) {
	onMoE(t, func(t *testing.T, c moeCase, r *moeRig) {
		st, ws := r.state(false), r.alloc(r.spec.ForwardWorkspaceBytes())
		if !st.DY.None() || !st.DWeights.None() {
			t.Error("a forward's state has gradients")
		}
		first := r.forward(st, ws, false)
		r.forward(st, ws, false)
		if y := r.forward(st, ws, true); !slices.Equal(y, first) {
			t.Error("an evaluation has other outputs")
		}
		var routing reference.Routing
		for range 2 {
			reference.MoE(c.cfg, r.ref, 0, slices.Concat(r.x...), &routing)
		}
		for e, n := range r.ids(st.Counts)[:c.cfg.NumExperts] {
			if float64(n) != routing.Counts[e] {
				t.Errorf("expert %d has %d pairs, want %v", e, n, routing.Counts[e])
			}
		}
		if d := distance(r.get(st.ProbSum), routing.Probs); !(d <= 1e-6) {
			t.Errorf("sums of probabilities %v, want %v", r.get(st.ProbSum), routing.Probs)
		}
		r.checkGuards()
	})
}

// TestMoEChunks: the number of tokens that are processed at once changes results only by the order
// of sums. The Keep levels of blocks change nothing in a MoE layer.
func TestMoEChunks(t *testing.T) {
	testkit.NotShort(t)
	for _, d := range devices {
		for _, c := range moeCases {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				var wantY []float64
				var want map[string][]float64
				for _, chunk := range []int{4, 0, 1, 13, 100} {
					sp := spec(c.cfg, KeepNothing, device.F32)
					sp.ChunkTokens = chunk
					y, got := newMoERig(t, d.open(t), c, sp).run()
					if chunk == 4 {
						wantY, want = y, got
						for _, keep := range []Keep{KeepAll, KeepInputs} {
							sp.Keep = KeepIn(c.cfg.NumLayers, keep)
							keptY, kept := newMoERig(t, d.open(t), c, sp).run()
							compareBits(t, "keep "+keep.String(), result{keptY, kept}, result{y, got})
						}
					}
					got["y"], want["y"] = y, wantY
					for name := range want {
						if dist := distance(got[name], want[name]); !(dist <= gradientBound) {
							t.Errorf("chunk %d: %s differs by %g", chunk, name, dist)
						}
					}
				}
			})
		}
	}
}

// TestMoEHiddenStatesOnTheHost: hidden states on the host change no bit of a MoE layer's results.
func TestMoEHiddenStatesOnTheHost(t *testing.T) {
	for _, act := range []device.DType{device.F32, device.BF16} {
		for _, c := range moeCases {
			s := spec(c.cfg, KeepNothing, act)
			y, want := newMoERig(t, openCPU(t, 2), c, s).run()
			far, got := newMoERig(t, openCPU(t, 2), c, onHost(s)).run()
			compareBits(t, fmt.Sprintf("%s %s", c.name, act), result{far, got}, result{y, want})
		}
	}
}

// TestMoEThreads: the number of threads of the CPU device changes no bit of a MoE layer's results.
func TestMoEThreads(t *testing.T) {
	for _, act := range []device.DType{device.F32, device.BF16} {
		for _, c := range moeCases {
			y, want := newMoERig(t, openCPU(t, 1), c, spec(c.cfg, KeepNothing, act)).run()
			again, got := newMoERig(t, openCPU(t, 3), c, spec(c.cfg, KeepNothing, act)).run()
			compareBits(t, fmt.Sprintf("%s %s", c.name, act), result{again, got}, result{y, want})
		}
	}
}

// TestMoEBF16: in bf16, a MoE layer's results are close to those in fp32 from the same weights and
// inputs. The bound allows for a dozen roundings of 2⁻⁹ each, which add up like a random walk.
// Beside a dense MLP there are twice as many.
func TestMoEBF16(t *testing.T) {
	for _, d := range devices {
		for _, c := range moeCases {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				half := newMoERig(t, d.open(t), c, spec(c.cfg, KeepNothing, device.BF16))
				full := newMoERig(t, d.open(t), c, spec(c.cfg, KeepNothing, device.F32))
				for k, w := range half.parts {
					for role, v := range w {
						full.put(full.parts[k][role], half.get(v))
					}
				}
				for i := range full.xs {
					full.put(full.xs[i], half.x[i])
					full.dy[i] = half.dy[i]
				}
				y, got := half.run()
				wantY, want := full.run()
				got["y"], want["y"] = y, wantY
				bound := 0.02
				switch {
				case c.cfg.DenseBesideExperts:
					bound *= math.Sqrt2
				case c.cfg.NormsExperts():
					bound *= math.Sqrt(15. / 12)
				}
				for name := range want {
					if dist := distance(got[name], want[name]); !(dist <= bound) {
						t.Errorf("%s differs by %g", name, dist)
					}
				}
			})
		}
	}
}

func TestMoESizes(t *testing.T) {
	dense := spec(config(func(*model.Config) {}), KeepNothing, device.F32)
	if n := dense.MoEBytes(100, true); n != 0 {
		t.Errorf("%d bytes for a model without experts", n)
	}
	s := spec(moeConfig(64, 4, func(c *model.Config) { c.HiddenSize = 256 }), KeepNothing, device.BF16)
	const tokens = 1 << 10
	perToken := int64(256*(2+4) + 64*4 + 4*4*4) // N, Sum, Logits, IDs, Weights, Order, Rows
	if n := s.MoEBytes(tokens, false); n < tokens*perToken || n > tokens*perToken+8*device.Align {
		t.Errorf("forward: %d bytes, want about %d", n, tokens*perToken)
	}
	perToken += 256*2 + 4*4 // DY, DWeights
	if n := s.MoEBytes(tokens, true); n < tokens*perToken || n > tokens*perToken+8*device.Align {
		t.Errorf("backward: %d bytes, want about %d", n, tokens*perToken)
	}
	// If experts are wider than all other layers, the workspace must have their size.
	wide := s
	wide.Config = moeConfig(64, 4, func(c *model.Config) { c.MoEIntermediateSize = 5000 })
	if n, least := wide.WorkspaceBytes(), int64(4*4*5000*2); n < least {
		t.Errorf("workspace of %d bytes, an expert needs %d", n, least)
	}
	if a, b := wide.WorkspaceBytes(), wide.ForwardWorkspaceBytes(); a <= b {
		t.Errorf("workspace of %d bytes backward and %d forward", a, b)
	}
}

// TestMoEDoesNotAllocate: a launch of a MoE layer makes as few allocations in Go as other launches,
// however many chunks it has.
func TestMoEDoesNotAllocate(t *testing.T) {
	if testkit.Race {
		t.Skip("with the race detector every operation has memory of its own")
	}
	c := moeCases[0]
	r := newMoERig(t, newToy(), c, spec(c.cfg, KeepNothing, device.F32))
	tpl, st, ws := New(r.spec, idle{}), r.state(true), r.alloc(r.spec.WorkspaceBytes())
	few := testing.AllocsPerRun(10, func() { tpl.ExpertForward(r.s, r.parts[1], st, 0, 4, ws) })
	many := testing.AllocsPerRun(10, func() { tpl.ExpertForward(r.s, r.parts[1], st, 0, 40, ws) })
	if few != many || few > 8 {
		t.Errorf("%g allocations for 1 chunk, %g for 10", few, many)
	}
}

// TestMoEPartsAreAlike: the weights of every expert have the same roles, whichever part of the
// layer the expert is.
func TestMoEPartsAreAlike(t *testing.T) {
	c := moeCases[0]
	r := newMoERig(t, newToy(), c, spec(c.cfg, KeepNothing, device.BF16))
	for k, w := range r.parts {
		want := []model.Role{model.RoleMLPNorm, model.RoleRouter}
		if k > 0 {
			want = []model.Role{model.RoleExpertDown, model.RoleExpertGateUp}
		}
		if got := slices.Sorted(maps.Keys(w)); !reflect.DeepEqual(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("part %d has %v, want %v", k, got, want)
		}
	}
	if dt := r.parts[0][model.RoleRouter].DType; dt != device.F32 {
		t.Errorf("the router's weight is %v", dt)
	}
}

// TestExpertsCross: with hidden states on the host, the router's visits copy the bytes that Spec.Crosses says. A sum of
// the experts that is normed is kept on the host.
func TestExpertsCross(t *testing.T) {
	for _, c := range moeCases {
		toy, s := newToy(), onHost(spec(c.cfg, KeepNothing, device.BF16))
		r := newMoERig(t, toy, c, s)
		n, mb, grads := r.counts[0], r.mb(0), r.grads(0)
		host := func() Hidden { return Hidden{Host: make([]byte, 2*n*c.cfg.HiddenSize)} }
		st, ws := r.tpl.BindMoE(r.alloc(s.MoEBytes(r.total(), true)), r.total(), true), r.alloc(s.moeWorkspaceBytes(true))
		for _, v := range []schedule.Visit{{Stage: schedule.Route}, {Stage: schedule.Combine}, {Stage: schedule.Combine, Phase: schedule.Evaluate},
			{Stage: schedule.Route, Phase: schedule.Backward}, {Stage: schedule.Combine, Phase: schedule.Backward}} {
			toy.up, toy.down = 0, 0
			moeKind{}.Launch(r.tpl, &Launch{Stream: r.s, Visit: v, Weights: r.parts[0], Grads: grads, In: host(), Out: host(), Grad: host(),
				MicroBatch: mb, Experts: st, Saved: r.saved[0], Workspace: ws, First: true})
			if up, down := s.Crosses(v, 0, n); up != toy.up || down != toy.down {
				t.Errorf("%s, %+v: %d bytes up and %d down, said to be %d and %d", c.name, v, toy.up, toy.down, up, down)
			}
		}
	}
}
