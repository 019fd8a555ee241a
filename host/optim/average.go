package optim

import (
	"slices"
	"unsafe"

	"mt/model"
)

// Average configures an exponential moving average of the weights, kept beside the weights. Whenever an element w has
// moved, in update number Step of the run,
//
//	ema = ema + (w − ema)·(1 − d)       0 once it is below the smallest normal number
//
// in fp32, each operation rounded. If 1 − d is 1/2 or more, the formula is w − (w − ema)·(1 − (1 − d)), from the nearer
// end, as in torch.lerp. 1 − d is rounded once. d is Decay, but 0 up to update After + 1, so the average begins equal
// to the weights. w is the stored, rounded weight. Source: torch.optim.swa_utils.get_ema_multi_avg_fn, whose first
// update also copies.
type Average struct {
	Decay float64 // 0: no average
	After int64
}

// averages is the plane of the moving average.
var averages = Plane{Name: "ema", DType: F32, Kind: "averages", Of: "the weights"}

// With returns a function that lists the planes of planes and, if a configures an average, the plane of the average.
func (a Average) With(planes Planes) Planes {
	if a.Decay == 0 {
		return planes
	}
	return func(p Piece) []Plane { return append(slices.Clone(planes(p)), averages) }
}

// Mean is the moving average of one layer's weights: its plane, and how it is computed.
type Mean struct {
	Plane   *State
	Average Average
}

// Means returns the moving average of a layer with these planes. It returns none if a configures no average, or if
// planes has no plane for one.
func (a Average) Means(planes []State) []Mean {
	if plane := MeanOf(planes); a.Decay > 0 && plane != nil {
		return []Mean{{plane, a}}
	}
	return nil
}

// factors returns the factors with which lerp moves the average in update number step; lerpFactors explains them.
func (a Average) factors(step int64) *coefs {
	decay := a.Decay
	if step <= a.After+1 {
		decay = 0
	}
	part, far := lerpFactors(float32(1 - decay))
	return &coefs{part, far}
}

// MeanOf returns the average's plane among planes; nil: none.
func MeanOf(planes []State) *State {
	for i := range planes {
		if planes[i].Plane == averages {
			return &planes[i]
		}
	}
	return nil
}

// average moves the moving average of the tensor's elements [at, at+n) towards their weights. The
// update of the weights comes first.
func (x *elements) average(of Mean, tl *model.TensorLayout, at, n int64) {
	mean, c, count := of.Plane.Floats(x.tensor, at, n), of.Average.factors(x.step), int(n)
	announceWrite(&mean[0], count)
	var w weightAt
	switch {
	case tl.BF16 && x.weight.Layout.BF16Master:
		x.averageRounded(tl, at, mean, c)
		return
	case tl.BF16:
		w.hi, w.lo = (*uint16)(unsafe.Pointer(&x.weight.Tile[tl.TileOff+2*at])), &x.weight.Lo[tl.Elem+at-x.weight.From]
	default:
		w.w = (*float32)(unsafe.Pointer(&x.weight.Tile[tl.TileOff+4*at]))
	}
	active.move(averageRule, w, &mean[0], nil, gradZero, nil, count, c)
}

// averageRounded is average for bf16 weights without lower halves. The kernel needs fp32 weights, so the weights are
// converted in strips (runs of at most stripElems elements).
func (x *elements) averageRounded(tl *model.TensorLayout, at int64, mean []float32, c *coefs) {
	hi := unsafe.Slice((*uint16)(unsafe.Pointer(&x.weight.Tile[tl.TileOff+2*at])), len(mean))
	wide := wides.Get().(*[2][stripElems]float32)
	defer wides.Put(wide)
	for i := 0; i < len(mean); i += stripElems {
		k := min(stripElems, len(mean)-i)
		w := wide[1][:k]
		widenBF16(w, hi[i:i+k])
		active.move(averageRule, weightAt{w: &w[0]}, &mean[i], nil, gradZero, nil, k, c)
	}
}

// lerpFactors returns the factors with which lerp computes a + (b − a)·t. Like torch.lerp, lerp starts from the end
// that is nearer. If t < 1/2, lerp starts from a, and part is t. Otherwise lerp starts from b, part is t − 1, and far
// is a mask with all bits set.
func lerpFactors(t float32) (part, far float32) {
	if t < 0.5 {
		return t, mask(false)
	}
	return -(1 - t), mask(true)
}

// lerp returns a + (b − a)·t, computed as torch.lerp does. The factors part and far come from
// lerpFactors(t).
func lerp(a, b, part float32, far bool) float32 {
	d := float32(part * float32(b-a))
	if far {
		return b + d
	}
	return a + d
}

// averageStrip moves a strip (a run of elements) of the averages m towards the weights w. c has the factors of lerp.
func averageStrip(w, m, _ []float32, c *coefs) {
	part, far := c[0], masked(c[1])
	m = m[:len(w)]
	for i, x := range w {
		m[i] = normal(lerp(m[i], x, part, far))
	}
}
