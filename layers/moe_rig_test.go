package layers

import (
	"math/rand/v2"
	"slices"
	"testing"

	"mt/device"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// moeRig is one MoE layer on a device under test, with weights and inputs for a step of several
// micro-batches.
type moeRig struct {
	*rig
	layout model.Layout
	parts  []Weights
	cfg    *model.Config
	counts []int       // tokens of the micro-batches
	x, dy  [][]float64 // as on the device
	xs     []device.Tensor
	saved  []device.Mem
}

// moeTokens has the numbers of tokens of the micro-batches in most tests.
var moeTokens = []int{13, 7}

func newMoERig(t *testing.T, dev device.Device, c moeCase, sp Spec) *moeRig {
	t.Helper()
	s := testkit.Must(dev.NewStream("compute"))(t)
	testkit.Close(t, s)
	r := &moeRig{rig: &rig{t: t, dev: dev, s: s, spec: sp, tpl: New(sp, dev), ref: reference.Weights{}}, cfg: c.cfg, counts: moeTokens}
	for _, l := range c.cfg.Layouts(sp.Act == device.BF16) {
		if l.Kind == model.MoE {
			r.layout = l
		}
	}
	rng := rand.New(rand.NewPCG(17, 19))
	for k := range r.layout.Parts() {
		l := r.layout.Part(k)
		w := BindWeights(l, r.alloc(l.SlotBytes))
		for _, p := range l.Tensors {
			v := r.values(p, nil, rng)
			if p.Role == model.RoleRouter {
				favour(v, c.favour, c.cfg.HiddenSize)
			}
			kept := r.put(w[p.Role], v)
			for _, part := range p.Stored {
				r.ref[part.Name] = kept[part.Row*p.Cols : (part.Row+part.Rows)*p.Cols]
			}
		}
		r.parts = append(r.parts, w)
	}
	for _, n := range r.counts {
		r.xs = append(r.xs, r.tensor(sp.Act, n*c.cfg.HiddenSize))
		var saved device.Mem
		if bytes := KindOf(model.MoE).SavedBytes(sp, 0, KeepNothing, n); bytes > 0 {
			saved = r.alloc(bytes)
		}
		r.saved = append(r.saved, saved)
		r.x = append(r.x, r.put(r.xs[len(r.xs)-1], r.inputs(rng, n)))
		r.dy = append(r.dy, r.put(r.tensor(sp.Act, n*c.cfg.HiddenSize), random(rng, n*c.cfg.HiddenSize)))
	}
	return r
}

// favour sets the first column of the router's weight to `by`. The inputs' first element is about 1
// after the norm, so `by` is added to their logits, and the router prefers some experts.
func favour(router, by []float64, h int) {
	for e, v := range by {
		router[e*h] = v
	}
}

func random(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	return v
}

// inputs returns n random tokens. Their first element is large, so that favour can steer the router
// by it.
func (r *moeRig) inputs(rng *rand.Rand, n int) []float64 {
	v := random(rng, n*r.cfg.HiddenSize)
	for t := range n {
		v[t*r.cfg.HiddenSize] = 2
	}
	return v
}

func (r *moeRig) mb(i int) MicroBatch { return MicroBatch{Tokens: r.counts[i]} }

// at returns the index of the first token of micro-batch i; for i after the last micro-batch, the
// number of all tokens.
func (r *moeRig) at(i int) int {
	n := 0
	for _, k := range r.counts[:i] {
		n += k
	}
	return n
}

func (r *moeRig) total() int { return r.at(len(r.counts)) }

// offsets copies the index of each expert's first pair to the host.
func (r *moeRig) offsets(st MoEState) []int {
	var out []int
	for _, v := range r.ids(st.Offsets) {
		out = append(out, int(v))
	}
	return out
}

func (r *moeRig) ids(t device.Tensor) []int32 {
	b, out := r.read(t.Mem()), make([]int32, t.Len)
	for i := range out {
		out[i] = int32(b[4*i]) | int32(b[4*i+1])<<8 | int32(b[4*i+2])<<16 | int32(b[4*i+3])<<24
	}
	return out
}

// state returns a MoEState with zero counts and probabilities.
func (r *moeRig) state(backward bool) MoEState {
	st := r.tpl.BindMoE(r.alloc(r.spec.MoEBytes(r.total(), backward)), r.total(), backward)
	r.s.Zero(st.Counts.Mem())
	r.s.Zero(st.ProbSum.Mem())
	return st
}

// hidden returns t as a hidden state; with Spec.OnHost it is a copy of t in host memory.
func (r *moeRig) hidden(t device.Tensor) Hidden {
	if !r.spec.OnHost {
		return OnDevice(t)
	}
	host := r.allocHost(t.Mem().Bytes)
	CopyDown(r.s, host, t.Mem())
	return Hidden{Host: host}
}

// fetch copies the hidden state h to t, if h is in host memory.
func (r *moeRig) fetch(t device.Tensor, h Hidden) {
	if h.Host != nil {
		CopyUp(r.s, t.Mem(), h.Host)
	}
}

// forward runs the forward of all micro-batches through the layer and returns their outputs.
func (r *moeRig) forward(st MoEState, ws device.Mem, eval bool) []float64 {
	for i, x := range r.xs {
		r.tpl.MoERoute(r.s, r.parts[0], r.hidden(x), r.at(i), r.mb(i), st, ws, eval)
	}
	r.tpl.MoESort(r.s, st, r.total(), !eval)
	off := r.offsets(st)
	for e := range r.cfg.AllExperts() {
		if n := off[e+1] - off[e]; n > 0 {
			r.tpl.ExpertForward(r.s, r.parts[1+e], st, off[e], n, ws)
		}
	}
	var out []float64
	for i := range r.xs {
		y := r.tensor(r.spec.Act, r.counts[i]*r.cfg.HiddenSize)
		to := r.hidden(y)
		r.tpl.Combine(r.s, r.parts[0], to, r.hidden(r.xs[i]), r.at(i), r.mb(i), st, r.saved[i], ws)
		r.fetch(y, to)
		out = append(out, r.get(y)...)
	}
	return out
}

// backward runs the backward of the layer. It returns the gradients of the inputs (under "x") and
// of the parameters.
func (r *moeRig) backward(st MoEState, ws device.Mem, auxScale float32) map[string][]float64 {
	var dys []device.Tensor
	for i, x := range r.xs {
		dys = append(dys, r.tensor(r.spec.Act, len(r.dy[i])))
		r.put(dys[i], r.dy[i])
		r.tpl.MoERouteAgain(r.s, r.parts[0], r.hidden(dys[i]), r.hidden(x), r.at(i), r.mb(i), st, r.saved[i], ws)
	}
	r.tpl.MoESort(r.s, st, r.total(), false)
	off, out := r.offsets(st), map[string][]float64{}
	for e := r.cfg.AllExperts() - 1; e >= 0; e-- {
		w := r.parts[1+e]
		if off[e] == off[e+1] {
			w = nil // idle: its weights are not there
		}
		g := r.grads(1 + e)
		r.tpl.ExpertBackward(r.s, w, g, st, off[e], off[e+1]-off[e], ws)
		r.collect(out, 1+e, g)
	}
	g := r.grads(0)
	for i, x := range r.xs {
		dxdy := r.hidden(dys[i])
		r.tpl.MoERouteBackward(r.s, r.parts[0], g, dxdy, r.hidden(x), r.at(i), r.mb(i), st, r.saved[i], ws, i == 0, auxScale)
		r.fetch(dys[i], dxdy)
		out["x"] = append(out["x"], r.get(dys[i])...)
	}
	r.tpl.ExpertScalesGrad(r.s, g, st, r.total())
	r.collect(out, 0, g)
	return out
}

func (r *moeRig) grads(part int) Grads {
	l := r.layout.Part(part)
	return BindGrads(l, r.alloc(4*l.GradElems))
}

func (r *moeRig) collect(out map[string][]float64, part int, g Grads) {
	for _, p := range r.layout.Part(part).Tensors {
		if p.Frozen {
			continue
		}
		v := r.get(g[p.Role])
		for _, q := range p.Stored {
			out[q.Name] = v[q.Row*p.Cols : (q.Row+q.Rows)*p.Cols]
		}
	}
}

// auxScale returns the factor of an expert's count in the gradient of the load-balancing loss; 0:
// the model has no such loss.
func (r *moeRig) auxScale() float32 {
	if !r.cfg.OutputRouterLogits {
		return 0
	}
	n := float64(r.total())
	return float32(r.cfg.RouterAuxLossCoef * float64(r.cfg.NumExperts) / (n * n))
}

// run runs a forward and a backward, and returns the outputs and the gradients.
func (r *moeRig) run() (y []float64, grads map[string][]float64) {
	r.t.Helper()
	st, ws := r.state(true), r.alloc(r.spec.WorkspaceBytes())
	y = r.forward(st, ws, false)
	grads = r.backward(st, ws, r.auxScale())
	r.checkGuards()
	return y, grads
}

// loss computes Σ y·dy plus the load-balancing loss with the reference model, for inputs x. Its
// gradient is what backward must return. It also returns the chosen experts.
func (r *moeRig) loss(x []float64) (float64, []int) {
	var routing reference.Routing
	y, sum := reference.MoE(r.cfg, r.ref, 0, x, &routing), 0.0
	for i, d := range slices.Concat(r.dy...) {
		sum += y[i] * d
	}
	if r.cfg.OutputRouterLogits {
		sum += routing.AuxLoss(r.cfg)
	}
	return sum, routing.Chosen
}
