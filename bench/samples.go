package bench

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"mt/host/optim"
	"mt/internal/bfloat"
	"mt/model"
)

// sampler is a run's own optimizer, and copies of what some of its updates read and
// wrote. It changes nothing.
type sampler struct {
	optim.Optimizer
	points []int  // the updates that are sampled, counted from 1, rising
	each   int    // pieces of a layer that are sampled
	stop   func() // ends the run after the last point

	mu    sync.Mutex
	first int64                         // the Step of the first update
	taken map[piece]bool                // pieces that are sampled
	grads map[piece][]byte              // gradients of the step before a point
	got   map[int]map[piece]*sampleUnit // by point
	last  int                           // the latest update that began
}

// made is how many updates have begun; of no sampler, none.
func (s *sampler) made() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// piece is one unit of one layer.
type piece struct {
	layer, tensor int
	at            int64
}

// sampleUnit is what one update read and wrote, as bytes.
type sampleUnit struct {
	kind           model.LayerKind
	bf16           bool   // the gradient is bf16, else fp32
	grad, before   []byte // gradient of this step and of the one before; nil: not of all elements
	w0, w1         []byte // fp32 weights before and after
	m0, m1, v0, v1 []byte // fp32 moments before and after
	codes          []byte // of moments in 8 bits, after
}

func newSampler(o optim.Optimizer, points []int, each int, stop func()) *sampler {
	return &sampler{Optimizer: o, points: points, each: each, stop: stop, taken: map[piece]bool{}, grads: map[piece][]byte{}, got: map[int]map[piece]*sampleUnit{}}
}

// Units implements optim.Optimizer. Of every layer some pieces of its matrices are
// sampled, with as many left out between them.
func (s *sampler) Units(l model.Layout) []optim.Unit {
	units := s.Optimizer.Units(l)
	var of []optim.Unit
	for _, u := range units {
		if l.Tensors[u.Tensor].Dims == 2 {
			of = append(of, u)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range min(s.each, len(of)) {
		u := of[i*len(of)/min(s.each, len(of))]
		s.taken[piece{l.Index, u.Tensor, u.At}] = true
	}
	return units
}

// At implements optim.Optimizer.
func (s *sampler) At(r optim.Rate) optim.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == 0 {
		s.first = r.Step
	}
	step := int(r.Step-s.first) + 1
	s.last = max(s.last, step)
	if step > s.points[len(s.points)-1] {
		s.stop()
	}
	next := s.Optimizer.At(r)
	now, soon := slices.Contains(s.points, step), slices.Contains(s.points, step+1)
	if !now && !soon {
		return next
	}
	return &watched{Update: next, s: s, point: step, now: now, soon: soon}
}

// watched is an update that is sampled, or whose gradients are.
type watched struct {
	optim.Update
	s         *sampler
	point     int
	now, soon bool // this update is a point, the next one is
}

// Step implements optim.Update.
func (w *watched) Step(u optim.Unit, weight optim.Weight, planes []optim.State, grad optim.Grad) {
	at := piece{weight.Layout.Index, u.Tensor, u.At}
	w.s.mu.Lock()
	taken, before := w.s.taken[at], w.s.grads[at]
	w.s.mu.Unlock()
	if !taken {
		w.Update.Step(u, weight, planes, grad)
		return
	}
	now := landed(u, grad)
	g := now
	if before == nil {
		g = nil // its neighbour in time is not known
	}
	x := &sampleUnit{kind: weight.Layout.Kind, bf16: grad.BF16, grad: g, before: before}
	x.w0, x.m0, x.v0 = weights(u, weight), moment(u, weight, planes, "m"), moment(u, weight, planes, "v")
	w.Update.Step(u, weight, planes, grad)
	x.w1, x.m1, x.v1 = weights(u, weight), moment(u, weight, planes, "m"), moment(u, weight, planes, "v")
	x.codes = codes(u, weight, planes)
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.grads[at] = now
	if !w.now {
		return
	}
	if w.s.got[w.point] == nil {
		w.s.got[w.point] = map[piece]*sampleUnit{}
	}
	w.s.got[w.point][at] = x
}

// landed is a copy of the gradient of a unit; nil where only some rows have one.
func landed(u optim.Unit, g optim.Grad) []byte {
	if g.Sparse {
		return nil
	}
	return bytes.Clone(g.Part(0, u.N).Data)
}

// weights is a copy of a unit's weights as fp32, from whichever planes hold them.
func weights(u optim.Unit, w optim.Weight) []byte {
	t := &w.Layout.Tensors[u.Tensor]
	if !t.BF16 {
		return bytes.Clone(w.Tile[t.TileOff+4*u.At:][:4*u.N])
	}
	out, hi, lo := make([]byte, 4*u.N), w.Tile[t.TileOff+2*u.At:], make([]uint16, u.N)
	if w.Lo != nil {
		copy(lo, w.Lo[t.Elem+u.At-w.From:])
	}
	for i := range int(u.N) {
		binary.NativeEndian.PutUint32(out[4*i:], optim.Join(binary.NativeEndian.Uint16(hi[2*i:]), lo[i]))
	}
	return out
}

// moment is a copy of a unit's part of an fp32 plane; nil where there is none.
func moment(u optim.Unit, w optim.Weight, planes []optim.State, name string) []byte {
	for _, p := range planes {
		if p.Name == name && p.DType == optim.F32 {
			return bytes.Clone(p.Of(w.Layout, u))
		}
	}
	return nil
}

// codes is a copy of a unit's part of the planes that have moments in 8 bits.
func codes(u optim.Unit, w optim.Weight, planes []optim.State) (all []byte) {
	for _, p := range planes {
		if p.DType == optim.U8 {
			all = append(all, p.Of(w.Layout, u)...)
		}
	}
	return all
}

// material is the bytes of one kind, and the same of the step before.
type material struct {
	kind       string
	layer      model.LayerKind
	size       int    // bytes of an element
	data, prev []byte // prev is empty where nothing was kept of the step before
}

// materials sorts what was sampled by kinds of bytes and of layers, with at most so many
// bytes of each. The order of points and pieces is kept.
func (s *sampler) materials(most int) []*material {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*material
	add := func(kind string, layer model.LayerKind, size int, data, prev []byte) {
		if data == nil {
			return
		}
		i := slices.IndexFunc(all, func(m *material) bool { return m.kind == kind && m.layer == layer })
		if i < 0 {
			i, all = len(all), append(all, &material{kind: kind, layer: layer, size: size})
		}
		all[i].data, all[i].prev = append(all[i].data, data...), append(all[i].prev, prev...)
	}
	for _, x := range s.spread(most) {
		if x.bf16 {
			add("gradient bf16", x.kind, 2, x.grad, x.before)
		} else {
			add("gradient fp32", x.kind, 4, x.grad, x.before)
			add("gradient bf16", x.kind, 2, roundAll(x.grad), roundAll(x.before))
		}
		hi1, lo1 := split(x.w1)
		hi0, lo0 := split(x.w0)
		add("weight hi", x.kind, 2, hi1, hi0)
		add("weight lo", x.kind, 2, lo1, lo0)
		add("weight fp32", x.kind, 4, x.w1, x.w0)
		add("update fp32", x.kind, 4, minus(x.w1, x.w0), nil)
		add("m", x.kind, 4, x.m1, x.m0)
		add("v", x.kind, 4, x.v1, x.v0)
		add("8-bit codes", x.kind, 1, x.codes, nil)
	}
	slices.SortStableFunc(all, func(a, b *material) int { return slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind) })
	return all
}

// kinds are the kinds of bytes, in the order of the table.
var kinds = []string{"gradient fp32", "gradient bf16", "weight hi", "weight lo", "weight fp32", "update fp32", "m", "v", "8-bit codes"}

// spread picks units of every kind of layer, evenly over points and layers, until one more
// would pass most bytes of fp32.
func (s *sampler) spread(most int) (out []*sampleUnit) {
	byKind := map[model.LayerKind][]*sampleUnit{}
	for _, point := range s.points {
		at := slices.SortedFunc(func(yield func(piece) bool) {
			for p := range s.got[point] {
				if !yield(p) {
					return
				}
			}
		}, func(a, b piece) int {
			return slices.Compare([]int{a.layer, a.tensor, int(a.at)}, []int{b.layer, b.tensor, int(b.at)})
		})
		for _, p := range at {
			x := s.got[point][p]
			byKind[x.kind] = append(byKind[x.kind], x)
		}
	}
	for kind := model.Embedding; kind <= model.Head; kind++ {
		units := byKind[kind]
		if len(units) == 0 {
			continue
		}
		n := min(len(units), max(1, most/len(units[0].w1)))
		for i := range n {
			out = append(out, units[i*len(units)/n])
		}
	}
	return out
}

// float is element i of fp32 bytes.
func float(b []byte, i int) float32 {
	return math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
}

// roundAll rounds fp32 bytes to bf16.
func roundAll(b []byte) []byte {
	if b == nil {
		return nil
	}
	out := make([]byte, len(b)/2)
	for i := range len(b) / 4 {
		binary.NativeEndian.PutUint16(out[2*i:], bfloat.Round(float(b, i)))
	}
	return out
}

// split makes the planes hi and lo of fp32 bytes.
func split(b []byte) (hi, lo []byte) {
	hi, lo = make([]byte, len(b)/2), make([]byte, len(b)/2)
	for i := range len(b) / 4 {
		h, l := optim.Split(binary.NativeEndian.Uint32(b[4*i:]))
		binary.NativeEndian.PutUint16(hi[2*i:], h)
		binary.NativeEndian.PutUint16(lo[2*i:], l)
	}
	return hi, lo
}

// minus is a − b, element by element, as fp32 bytes.
func minus(a, b []byte) []byte {
	out := make([]byte, len(a))
	for i := range len(a) / 4 {
		binary.NativeEndian.PutUint32(out[4*i:], math.Float32bits(float(a, i)-float(b, i)))
	}
	return out
}
