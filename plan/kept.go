package plan

import (
	"sync"

	"mt/device"
	"mt/host/optim"
	"mt/model"
)

// kept caches, by layer, what fits and Table compute from the layouts again and again. Equal layers
// share their entries.
type kept struct {
	like     []int            // by layer: the first layer with equal tensors
	planes   [][]optim.Placed // by layer
	bytes    []int64          // total size of the planes, by layer
	matrices [][]optim.Matrix // matrices that are updated whole, by layer
	extents  []int64          // size of the state on disk, by layer; nil: not computed
}

// shared has what the plans of one request, and of its changed copies, have in common.
type shared struct {
	mu      sync.Mutex
	of      sharedKey
	layouts []model.Layout
	kept    *kept
}

// sharedKey has the parts of a request on which shared depends, besides its functions.
type sharedKey struct {
	config               *model.Config
	act                  device.DType
	bf16Master, evalOnly bool
	optim                string
	nsSteps              int
}

// Sharing returns q with memory for what its plans, and plans of changed copies, have in common. The copies keep the
// model and the optimizer's functions. It makes planning many copies faster.
func (q Request) Sharing() Request {
	q.shared = &shared{}
	return q
}

// layOut sets r's layouts, and its cache of what follows from them.
func (r *Run) layOut(q Request) {
	x := q.shared
	if x == nil {
		x = &shared{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if of := (sharedKey{q.Config, q.Act, q.BF16Master, q.EvalOnly, q.Optim, q.NSSteps}); x.kept == nil || of != x.of {
		r.Layouts = q.Config.Layouts(q.Act == device.BF16)
		for i := range r.Layouts {
			r.Layouts[i].BF16Master = q.BF16Master
		}
		r.keep()
		x.of, x.layouts, x.kept = of, r.Layouts, r.kept
	}
	k := *x.kept
	r.Layouts, r.kept = x.layouts, &k
}

// keep fills the cache r.kept: for each layer its planes, their size, and the matrices that are
// updated whole.
func (r *Run) keep() {
	k := &kept{}
	for i, l := range r.Layouts {
		like := 0
		for like < i && (k.like[like] < like || !sameTensors(l, r.Layouts[like])) {
			like++
		}
		if k.like = append(k.like, like); like < i {
			k.planes, k.bytes, k.matrices = append(k.planes, k.planes[like]), append(k.bytes, k.bytes[like]), append(k.matrices, k.matrices[like])
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

// placed returns the planes of layer l: arrays of optimizer state, and others such as averages,
// that the host keeps beside the weights. Each comes with its offsets.
func (r *Run) placed(l int) []optim.Placed {
	if r.kept == nil {
		r.keep()
	}
	return r.kept.planes[l]
}

// Matrices returns the matrices of layer l that Muon updates whole, by orthogonalizing their
// momentum; none if NSSteps is 0.
func (r *Run) Matrices(l int) []optim.Matrix {
	if r.NSSteps == 0 || r.EvalOnly || !r.has(l) {
		return nil
	}
	if r.kept == nil {
		r.keep()
	}
	return r.kept.matrices[l]
}

// planeBytes returns the total size in bytes of the planes beside the weights of layer l.
func (r *Run) planeBytes(l int) int64 {
	if r.kept == nil {
		r.keep()
	}
	return r.kept.bytes[l]
}

// sameTensors reports whether two layers have tensors of equal roles and sizes. Their planes and matrices are then
// equal too.
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
