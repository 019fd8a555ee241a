package optim

import (
	"math"

	"mt/model"
)

// Muon moves matrices by their momentum, with all its singular values brought near 1, and
// all other parameters as AdamW. With g the gradient times Clip, for every matrix
//
//	m = m + (g − m)·(1 − Momentum)
//	u = g + (m − g)·Momentum            or m, without Nesterov
//	o = NewtonSchulz(u)                 on the device, in NSSteps steps
//	w = w·(1 − LR·WeightDecay) − LR·adjusted·o
//
// where LR is Scale times the run's and adjusted depends on the shape (see Adjust). m is the plane
// "momentum" and fp32, or kept in codes of Bits as Quantised keeps moments; u and o have the type that the device
// computes in. Embedding, head, routers and vectors are Others', at OthersScale times the run's rate. Sources:
// torch.optim.Muon; arXiv:2502.16982; for a momentum in dynamic codes arXiv:2509.23106.
type Muon struct {
	Momentum    float64
	Nesterov    bool
	NSSteps     int
	Adjust      Adjust
	WeightDecay float64
	Bits        int     // of the momentum: 8, or 0 for fp32
	Scale       float64 // of the rate of matrices
	Others      Optimizer
	OthersScale float64 // of the rate of all else
	// Groups are those of matrices; nil: there are none. Others has its own.
	Groups *Groups
}

// Adjust is how the rate of a matrix (rows, cols) follows from its shape.
type Adjust string

// The ways, with torch's names.
const (
	Original      Adjust = "original"        // √max(1, rows/cols)
	MatchRMSAdamW Adjust = "match_rms_adamw" // 0.2·√max(rows, cols): steps about as large as AdamW's
)

// of is the factor of a matrix's rate.
func (a Adjust) of(rows, cols int) float64 {
	if a == MatchRMSAdamW {
		return 0.2 * math.Sqrt(float64(max(rows, cols)))
	}
	return math.Sqrt(max(1, float64(rows)/float64(cols)))
}

// momentum is the plane of a matrix.
var momentum = moment{Plane{Name: "momentum", DType: F32, Kind: "moments", Of: "Muon"}, true}

// Matrix is a matrix that Muon moves whole: a tensor as PyTorch has it. What the engine holds as one
// (q, k and v; gate and up) are several.
type Matrix struct {
	Tensor     int   // of the layer
	At         int64 // its first element in that tensor
	Rows, Cols int
}

// Elems is the number of elements of m.
func (m Matrix) Elems() int64 { return int64(m.Rows) * int64(m.Cols) }

// OfMatrices says whether Muon moves the matrices of p as such: neither embedding nor head nor
// router, which choose rows and do not map one space to another.
func OfMatrices(p model.Param) bool {
	return p.Dims == 2 && !p.F32 && p.Role != model.RoleEmbed && p.Role != model.RolePositions && p.Role != model.RoleLMHead
}

// Matrices lists the matrices of the tensors that l owns, in their order.
func Matrices(l model.Layout) (out []Matrix) {
	for t, tl := range l.Tensors {
		if tl.Ref || tl.Frozen || !OfMatrices(tl.Param) {
			continue
		}
		for _, p := range Pieces(tl.Param) {
			out = append(out, Matrix{Tensor: t, At: p.At(), Rows: p.Rows, Cols: tl.Cols})
		}
	}
	return out
}

// Planes implements Optimizer.
func (m Muon) Planes(p Piece) []Plane {
	switch q := m.codes(); {
	case !OfMatrices(p.Param):
		return m.Others.Planes(p)
	case m.Bits > 0 && q.coded(p):
		return []Plane{q.codesOf(momentum), q.scalesOf(momentum)}
	}
	return []Plane{momentum.Plane}
}

// codes is how the momentum is kept, where Bits says that it is kept in codes.
func (m Muon) codes() Quantised { return Quantised{Bits: m.Bits} }

// Units implements Optimizer: they are those of all that is no matrix. See Matrices for the rest.
func (m Muon) Units(l model.Layout) (out []Unit) {
	for _, u := range m.Others.Units(l) {
		if !OfMatrices(l.Tensors[u.Tensor].Param) {
			out = append(out, u)
		}
	}
	return out
}

// At implements Optimizer, for units.
func (m Muon) At(r Rate) Update {
	r.LR *= m.OthersScale
	return m.Others.At(r)
}

// MatrixUpdate moves matrices at one rate, in two parts: Prepare, and Apply when the device has made
// o of u. Several goroutines may call its methods at the same time, for different elements.
type MatrixUpdate struct {
	of   Muon
	clip float32
	lr   float64 // the run's
	step int64   // see Rate
}

// MatricesAt prepares updates of matrices at one rate.
func (m Muon) MatricesAt(r Rate) *MatrixUpdate {
	return &MatrixUpdate{of: m, clip: r.Clip, lr: r.LR, step: r.Step}
}

// Prepare moves the momentum of n elements of matrix x, from element at on, by their gradient g,
// and writes u to to. Where the momentum is kept in codes, at and n are whole blocks.
func (u *MatrixUpdate) Prepare(x Matrix, at, n int64, w Weight, planes []State, g, to Grad) {
	g.Check("prepare a matrix", n)
	to.Check("prepare a matrix", n)
	announceGrad(g.kind(), g.at(0), int(n))
	announceWrite(to.at(0), int(n*to.size()))
	c, q := u.factors(), u.of.codes()
	if u.of.Bits == 0 || !q.coded(pieceOf(w.Layout.Tensors[x.Tensor].Param, x.At)) {
		m := find(planes, momentum.Name, F32).Floats(x.Tensor, x.At+at, n)
		announceWrite(&m[0], int(n))
		active.prepared(&m[0], g.kind(), g.at(0), to.kind(), to.at(0), int(n), c)
		return
	}
	s, all := schemes[u.of.Bits], Unit{x.Tensor, x.At + at, n}
	codes, scales := q.stateOf(momentum, planes, w.Layout, all)
	r := rooms.Get().(*room)
	defer rooms.Put(r)
	for from := int64(0); from < n; from += stripCoded {
		k := min(stripCoded, n-from)
		m, codes, scales := r.moments[0][:k], codes[s.codes.Bytes(from):s.codes.Bytes(from+k)], scales[from/s.block:(from+k)/s.block]
		s.decode(s.book(momentum.signed), m, codes, scales)
		active.prepared(&m[0], g.kind(), g.at(from), to.kind(), to.at(from), int(k), c)
		s.encode(s.book(momentum.signed), m, codes, scales)
	}
}

// factors are clip, what lerp takes of the difference in the momentum and a mask that is set where it begins at the
// farther end, the same of what is ahead, and a mask of all bits with Nesterov's momentum.
func (u *MatrixUpdate) factors() *coefs {
	part, far := lerpFactors(float32(1 - u.of.Momentum))
	ahead, farAhead := lerpFactors(float32(u.of.Momentum))
	return &coefs{u.clip, part, far, ahead, farAhead, mask(u.of.Nesterov)}
}

// lerpFactors are the factors of a + (b − a)·t, as torch.lerp computes it: from the nearer end, which is b with a mask
// that is set.
func lerpFactors(t float32) (part, far float32) {
	if t < 0.5 {
		return t, mask(false)
	}
	return -(1 - t), mask(true)
}

// lerp is what these factors make of a and b.
func lerp(a, b, part float32, far bool) float32 {
	d := float32(part * float32(b-a))
	if far {
		return b + d
	}
	return a + d
}

// prepareStrip moves the momentum m by gradients g and sets out to what is handed over.
func prepareStrip(m, g, out []float32, c *coefs) {
	clip, part, far, ahead, farAhead, nesterov := c[0], c[1], masked(c[2]), c[3], masked(c[4]), masked(c[5])
	m, g = m[:len(out)], g[:len(out)]
	for i := range out {
		e := float32(g[i] * clip)
		next := normal(lerp(m[i], e, part, far))
		m[i] = next
		if nesterov {
			next = lerp(e, next, ahead, farAhead)
		}
		out[i] = next
	}
}

// Apply moves the weights of n elements of matrix x, from element at on, by what the device has made
// of u.
func (u *MatrixUpdate) Apply(x Matrix, at, n int64, w Weight, o Grad) {
	o.Check("apply to a matrix", n)
	lr, decay := u.rate(w.Layout.Tensors[x.Tensor].Param, x.At)
	c := coefs{1, float32(lr * u.of.Adjust.of(x.Rows, x.Cols))}
	by := &arithmetic{rule: applyRule, still: c, decays: c}
	by.decays[0] = float32(1 - lr*decay)
	all := elements{weight: &w, tensor: x.Tensor, by: by, step: u.step}
	all.move(x.At+at, n, o.kind(), o.at(0))
}

// rate is the rate of the matrix that begins with element at of p, before it is adjusted, and its weight decay.
func (u *MatrixUpdate) rate(p model.Param, at int64) (lr, decay float64) {
	if s, _ := storedAt(p, at); s.Group > 0 && u.of.Groups != nil {
		g := (*u.of.Groups)[s.Group-1]
		return u.lr * g.Scale, g.WeightDecay
	}
	return u.lr * u.of.Scale, u.of.WeightDecay
}

func applyStrip(w, _, o []float32, c *coefs) {
	decay, rate := c[0], c[1]
	for i, x := range w {
		w[i] = float32(x*decay) - float32(rate*o[i])
	}
}
