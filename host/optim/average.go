package optim

import (
	"slices"
	"unsafe"

	"mt/model"
)

// Average says how an exponential moving average of the weights is kept beside them. Whenever an element w has moved, in update
// number Step of the run,
//
//	ema = ema + (w − ema)·(1 − d)       0 once it is below the smallest normal number
//
// in fp32, each operation rounded. Where 1 − d is 1/2 or more it is w − (w − ema)·(1 − (1 − d)), from the nearer end, as torch.lerp has it.
// 1 − d is rounded once; d is Decay, and 0 up to update After + 1, so that the average begins as the weights are then. w is what the update
// has rounded and kept. Source: torch.optim.swa_utils.get_ema_multi_avg_fn, with which the first update copies too.
type Average struct {
	Decay float64 // 0: no average is kept
	After int64
}

// averages is the plane of the averages.
var averages = Plane{Name: "ema", DType: F32, Kind: "averages", Of: "the weights"}

// With are planes, and that of the average, if one is kept.
func (a Average) With(planes Planes) Planes {
	if a.Decay == 0 {
		return planes
	}
	return func(p Piece) []Plane { return append(slices.Clone(planes(p)), averages) }
}

// Mean is an average of a layer's weights: its plane, and how it moves.
type Mean struct {
	Plane   *State
	Average Average
}

// Means are the averages that are kept beside planes, which are a layer's: none where a keeps none or the layer has no such plane.
func (a Average) Means(planes []State) []Mean {
	if plane := MeanOf(planes); a.Decay > 0 && plane != nil {
		return []Mean{{plane, a}}
	}
	return nil
}

// factors are what lerp takes of the difference in update step, and a mask that is set where it begins at the weight.
func (a Average) factors(step int64) *coefs {
	decay := a.Decay
	if step <= a.After+1 {
		decay = 0
	}
	part, far := lerpFactors(float32(1 - decay))
	return &coefs{part, far}
}

// MeanOf is the plane of the average among planes; nil: there is none.
func MeanOf(planes []State) *State {
	for i := range planes {
		if planes[i].Plane == averages {
			return &planes[i]
		}
	}
	return nil
}

// average moves an average of n elements that have moved, from element at on.
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

// averageRounded is average of weights without lower halves.
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

func averageStrip(w, m, _ []float32, c *coefs) {
	part, far := c[0], masked(c[1])
	m = m[:len(w)]
	for i, x := range w {
		m[i] = normal(lerp(m[i], x, part, far))
	}
}
