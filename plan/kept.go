package plan

import (
	"mt/host/optim"
	"mt/model"
)

// kept is what is asked of layers again and again, found once: layers that are alike share it.
type kept struct {
	planes   [][]optim.Placed // by layer
	bytes    []int64          // of those planes
	matrices [][]optim.Matrix // that are updated whole
	extents  []int64          // by layer, the size of its state on a disk; nil: not found yet
}

// keep finds what is kept beside the weights of each layer.
func (r *Run) keep() {
	k := &kept{}
	for i, l := range r.Layouts {
		if i > 0 && sameTensors(l, r.Layouts[i-1]) {
			k.planes, k.bytes, k.matrices = append(k.planes, k.planes[i-1]), append(k.bytes, k.bytes[i-1]), append(k.matrices, k.matrices[i-1])
			continue
		}
		var matrices []optim.Matrix
		if r.NSSteps > 0 {
			matrices = optim.Matrices(l)
		}
		bytes := int64(0)
		planes := r.Planes.Of(l)
		for _, p := range planes {
			bytes += p.Bytes()
		}
		k.planes, k.bytes, k.matrices = append(k.planes, planes), append(k.bytes, bytes), append(k.matrices, matrices)
	}
	r.kept = k
}

// placed is what is kept beside the weights of layer l.
func (r *Run) placed(l int) []optim.Placed {
	if r.kept == nil {
		r.keep()
	}
	return r.kept.planes[l]
}

// Matrices are the matrices of layer l that are updated whole: none unless NSSteps is above 0.
func (r *Run) Matrices(l int) []optim.Matrix {
	if r.NSSteps == 0 || r.EvalOnly || !r.has(l) {
		return nil
	}
	if r.kept == nil {
		r.keep()
	}
	return r.kept.matrices[l]
}

// planeBytes is the size of what is kept beside the weights of layer l.
func (r *Run) planeBytes(l int) int64 {
	if r.kept == nil {
		r.keep()
	}
	return r.kept.bytes[l]
}

// sameTensors says whether two layers have tensors of the same roles and sizes, so that the same is kept beside
// them.
func sameTensors(a, b model.Layout) bool {
	if a.Kind != b.Kind || a.Elems != b.Elems || len(a.Tensors) != len(b.Tensors) {
		return false
	}
	for i := range a.Tensors {
		t, u := &a.Tensors[i], &b.Tensors[i]
		if t.Role != u.Role || t.Rows != u.Rows || t.Cols != u.Cols || t.Dims != u.Dims || t.Elem != u.Elem || t.Ref != u.Ref || t.Frozen != u.Frozen || t.BF16 != u.BF16 ||
			t.Part != u.Part || len(t.Stored) != len(u.Stored) {
			return false
		}
		for k := range t.Stored {
			if t.Stored[k].Row != u.Stored[k].Row || t.Stored[k].Rows != u.Stored[k].Rows {
				return false
			}
		}
	}
	return true
}
