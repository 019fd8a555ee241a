package optim

import (
	"math"

	"mt/internal/bfloat"
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
// "momentum" and fp32; u and o have the type that the device computes in. Embedding, head,
// routers and vectors are Others', at OthersScale times the run's rate. Sources: torch.optim.Muon;
// arXiv:2502.16982.
type Muon struct {
	Momentum    float64
	Nesterov    bool
	NSSteps     int
	Adjust      Adjust
	WeightDecay float64
	Scale       float64 // of the rate of matrices
	Others      AdamW
	OthersScale float64 // of the rate of all else
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
var momentum = Plane{Name: "momentum", DType: F32, Kind: "moments", Of: "Muon"}

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
	return p.Dims == 2 && !p.F32 && p.Role != model.RoleEmbed && p.Role != model.RoleLMHead
}

// Matrices lists the matrices of the tensors that l owns, in their order.
func Matrices(l model.Layout) (out []Matrix) {
	for t, tl := range l.Tensors {
		if tl.Ref || !OfMatrices(tl.Param) {
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
	if OfMatrices(p.Param) {
		return []Plane{momentum}
	}
	return m.Others.Planes(p)
}

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
	of          Muon
	clip, decay float32
	lr          float64
}

// MatricesAt prepares updates of matrices at one rate.
func (m Muon) MatricesAt(r Rate) *MatrixUpdate {
	lr := r.LR * m.Scale
	return &MatrixUpdate{of: m, clip: r.Clip, decay: float32(1 - lr*m.WeightDecay), lr: lr}
}

// stripElems is how many elements are taken at a time, with those of bf16 widened.
const stripElems = 512

// Prepare moves the momentum of n elements of matrix x, from element at on, by their gradient g,
// and writes u to to.
func (u *MatrixUpdate) Prepare(x Matrix, at, n int64, w Weight, planes []State, g, to Grad) {
	g.Check("prepare a matrix", n)
	to.Check("prepare a matrix", n)
	m := find(planes, momentum.Name, F32).floats(x.Tensor, x.At+at, n)
	mu, fresh := float32(u.of.Momentum), float32(1-u.of.Momentum)
	var wide, made [stripElems]float32
	for from := 0; from < len(m); from += stripElems {
		m := m[from:min(from+stripElems, len(m))]
		g, out := g.wide(wide[:], from, len(m)), made[:len(m)]
		for i := range m {
			e := float32(g[i] * u.clip)
			next := lerp(m[i], e, fresh)
			if math.Float32bits(next)&expMask == 0 {
				next = 0
			}
			m[i] = next
			if u.of.Nesterov {
				next = lerp(e, next, mu)
			}
			out[i] = next
		}
		to.put(from, out)
	}
}

// lerp is a + (b − a)·t, as torch.lerp computes it: from the nearer end.
func lerp(a, b, t float32) float32 {
	if t < 0.5 {
		return a + float32(t*float32(b-a))
	}
	return b - float32(float32(b-a)*float32(1-t))
}

// Apply moves the weights of n elements of matrix x, from element at on, by what the device has made
// of u.
func (u *MatrixUpdate) Apply(x Matrix, at, n int64, w Weight, o Grad) {
	o.Check("apply to a matrix", n)
	tl, first := &w.Layout.Tensors[x.Tensor], x.At+at
	rate, decay := float32(u.lr*u.of.Adjust.of(x.Rows, x.Cols)), float32(1)
	if tl.Decay() {
		decay = u.decay
	}
	var wide [stripElems]float32
	for from := 0; from < int(n); from += stripElems {
		o, at := o.wide(wide[:], from, min(stripElems, int(n)-from)), first+int64(from)
		if !tl.BF16 {
			own := View[float32](w.Tile[tl.TileOff+4*at:][:4*len(o)])
			for i, y := range o {
				own[i] = float32(own[i]*decay) - float32(rate*y)
			}
			continue
		}
		hi, lo := View[uint16](w.Tile[tl.TileOff+2*at:][:2*len(o)]), w.Lo[tl.Elem+at-w.From:][:len(o)]
		for i, y := range o {
			x := math.Float32frombits(Join(hi[i], lo[i]))
			hi[i], lo[i] = Split(math.Float32bits(float32(x*decay) - float32(rate*y)))
		}
	}
}

// wide is n elements of g from element at on, as fp32: g's own memory or a copy in buf.
func (g Grad) wide(buf []float32, at, n int) []float32 {
	if !g.BF16 {
		return View[float32](g.Data[4*at:][:4*n])
	}
	for i, x := range View[uint16](g.Data[2*at:][:2*n]) {
		buf[i] = bfloat.Widen(x)
	}
	return buf[:n]
}

// put makes v, rounded to g's type, the elements of g from element at on.
func (g Grad) put(at int, v []float32) {
	if !g.BF16 {
		copy(View[float32](g.Data[4*at:][:4*len(v)]), v)
		return
	}
	for i, to := 0, View[uint16](g.Data[2*at:][:2*len(v)]); i < len(v); i++ {
		to[i] = bfloat.Round(v[i])
	}
}
