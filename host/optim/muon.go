package optim

import (
	"math"

	"mt/model"
)

// Muon updates matrices by their orthogonalized momentum, and all other parameters by Others, which is AdamW. With g
// the gradient times Clip, for every matrix
//
//	m = m + (g − m)·(1 − Momentum)
//	u = g + (m − g)·Momentum            or m, without Nesterov
//	o = NewtonSchulz(u)                 on the device, in NSSteps steps
//	w = w·(1 − LR·WeightDecay) − LR·adjusted·o
//
// where LR is the run's learning rate times Scale, and adjusted depends on the shape (see Adjust). The plane "momentum"
// holds m in fp32, or in codes of Bits bits as in Quantised. u and o have the device's compute type. Embedding, head,
// routers and vectors use Others, at the run's learning rate times OthersScale. Sources: torch.optim.Muon;
// arXiv:2502.16982; for a momentum in dynamic codes arXiv:2509.23106.
type Muon struct {
	Momentum    float64
	Nesterov    bool
	NSSteps     int
	Adjust      Adjust
	WeightDecay float64
	Bits        int     // bits of the momentum: 8, or 0 for fp32
	Scale       float64 // factor of the learning rate of matrices
	Others      Optimizer
	OthersScale float64 // factor of the learning rate of other parameters
	// Groups has the groups of matrices; nil: none. Others has its own groups.
	Groups *Groups
}

// Adjust selects how a matrix's learning rate depends on its shape (rows, cols).
type Adjust string

// The adjustments, with the names that torch.optim.Muon gives them.
const (
	Original      Adjust = "original"        // √max(1, rows/cols)
	MatchRMSAdamW Adjust = "match_rms_adamw" // 0.2·√max(rows, cols): step sizes similar to AdamW's
)

// of returns the factor that adjusts the learning rate of a matrix with this many rows and columns.
func (a Adjust) of(rows, cols int) float64 {
	if a == MatchRMSAdamW {
		return 0.2 * math.Sqrt(float64(max(rows, cols)))
	}
	return math.Sqrt(max(1, float64(rows)/float64(cols)))
}

// momentum is the plane that stores the momentum of matrices in fp32.
var momentum = moment{Plane{Name: "momentum", DType: F32, Kind: "moments", Of: "Muon"}, true}

// Matrix is a matrix that Muon orthogonalizes as a whole, one tensor as in PyTorch. A parameter that mt stacks (q, k
// and v; gate and up) has several.
type Matrix struct {
	Tensor     int   // index of the tensor in the layer
	At         int64 // first element in the tensor
	Rows, Cols int
}

// Elems is the number of elements of m.
func (m Matrix) Elems() int64 { return int64(m.Rows) * int64(m.Cols) }

// OfMatrices reports whether Muon updates parameter p as matrices. It excludes embeddings, head and router. They look
// up or score rows and do not map one space to another.
func OfMatrices(p model.Param) bool {
	return p.Dims == 2 && !p.F32 && p.Role != model.RoleEmbed && p.Role != model.RolePerLayerTable && p.Role != model.RolePositions && p.Role != model.RoleLMHead
}

// Matrices lists the matrices among the parameters that layer l owns and trains, in order.
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

// codes returns how the momentum is quantized. Bits must not be 0.
func (m Muon) codes() Quantised { return Quantised{Bits: m.Bits} }

// Units implements Optimizer. It returns units only for parameters that are not matrices. Matrices lists the others.
func (m Muon) Units(l model.Layout) (out []Unit) {
	for _, u := range m.Others.Units(l) {
		if !OfMatrices(l.Tensors[u.Tensor].Param) {
			out = append(out, u)
		}
	}
	return out
}

// At implements Optimizer. It applies to the units, so it returns the update of Others.
func (m Muon) At(r Rate) Update {
	r.LR *= m.OthersScale
	return m.Others.At(r)
}

// MatrixUpdate updates matrices at one learning rate in two parts: Prepare, and Apply after the device has
// orthogonalized u to o. Concurrent calls for different elements are safe.
type MatrixUpdate struct {
	of   Muon
	clip float32
	lr   float64 // the run's learning rate
	step int64   // see Rate
}

// MatricesAt returns the update of matrices with learning rate, step and clipping factor r.
func (m Muon) MatricesAt(r Rate) *MatrixUpdate {
	return &MatrixUpdate{of: m, clip: r.Clip, lr: r.LR, step: r.Step}
}

// Prepare updates the momentum of elements [at, at+n) of matrix x by their gradient g. It writes the matrix to
// orthogonalize to the argument `to`. If the momentum is stored in codes, at and n must be multiples of the block size.
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

// factors returns the factors of the rule in order: clip, two factors for lerp of the momentum, two for lerp of
// Nesterov's momentum, and a mask, whose bits are set if Nesterov's momentum is used.
func (u *MatrixUpdate) factors() *coefs {
	part, far := lerpFactors(float32(1 - u.of.Momentum))
	ahead, farAhead := lerpFactors(float32(u.of.Momentum))
	return &coefs{u.clip, part, far, ahead, farAhead, mask(u.of.Nesterov)}
}

// prepareStrip updates a strip (a run of elements) of the momentum m by the gradients g. It sets out to the elements of
// the matrix to orthogonalize.
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

// Apply updates the weights of elements [at, at+n) of matrix x. o has these elements of the orthogonalized matrix.
func (u *MatrixUpdate) Apply(x Matrix, at, n int64, w Weight, o Grad) {
	o.Check("apply to a matrix", n)
	lr, decay := u.rate(w.Layout.Tensors[x.Tensor].Param, x.At)
	c := coefs{1, float32(lr * u.of.Adjust.of(x.Rows, x.Cols))}
	by := &arithmetic{rule: applyRule, still: c, decays: c}
	by.decays[0] = float32(1 - lr*decay)
	all := elements{weight: &w, tensor: x.Tensor, by: by, step: u.step}
	all.move(x.At+at, n, o.kind(), o.at(0))
}

// rate returns the learning rate and the weight decay for the matrix that begins at element at of parameter p. The
// learning rate is not yet adjusted to the matrix's shape.
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
