package layers

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"time"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

// toy is a device in plain Go for tests. Every operation runs at once, in float64, and rounds once,
// when it stores its result. toy is strict: memory is NaN until written, and accesses outside an
// allocation, or overlaps that an operation does not allow, are errors.
type toy struct {
	base []uintptr
	data [][]byte
	used device.Usage
	// matmuls and attended count floating point operations of MatMul and of
	// Attention's forward.
	matmuls, attended int64
	recurred          int64 // those of recurrences' forward
	// up and down count the bytes that streams copied to the device and from it.
	up, down int64
}

func newToy() *toy { return &toy{} }

func (d *toy) Name() string               { return "toy" }
func (d *toy) Kind() string               { return "toy" }
func (d *toy) Unified() bool              { return false }
func (d *toy) Free(device.Mem)            {}
func (d *toy) FreeHost([]byte)            {}
func (d *toy) Register(...[]byte) error   { return nil }
func (d *toy) Unregister(...[]byte)       {}
func (d *toy) Usage() device.Usage        { return d.used }
func (d *toy) Close() error               { return nil }
func (d *toy) BindHost([]byte) device.Mem { panic("toy: not unified") }

func (d *toy) Reach(device.Device) (bool, error) { return false, nil }

func (d *toy) AllocHost(n int64) ([]byte, error)       { return make([]byte, n), nil }
func (d *toy) NewStream(string) (device.Stream, error) { return toyStream{d}, nil }
func (d *toy) NewEvent() (device.Event, error)         { return toyEvent{}, nil }
func (d *toy) Alloc(_ accounts.Purpose, n int64) (device.Mem, error) {
	next := uintptr(device.Align)
	if k := len(d.base); k > 0 {
		next = (d.base[k-1] + uintptr(len(d.data[k-1])) + 2*device.Align) / device.Align * device.Align
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xFF // NaN in fp32 and bf16
	}
	d.base, d.data = append(d.base, next), append(d.data, b)
	return device.Mem{Addr: next, Bytes: n}, nil
}

// bytes returns the memory of m. It panics unless m lies inside one allocation.
func (d *toy) bytes(m device.Mem) []byte {
	k := sort.Search(len(d.base), func(i int) bool { return d.base[i] > m.Addr }) - 1
	if k < 0 || int64(m.Addr-d.base[k])+m.Bytes > int64(len(d.data[k])) {
		panic(fmt.Sprintf("toy: %d bytes at %#x are no memory of mine", m.Bytes, m.Addr))
	}
	return d.data[k][m.Addr-d.base[k]:][:m.Bytes]
}

// load returns the first n elements of t.
func (d *toy) load(t device.Tensor, n int) []float64 {
	b := d.bytes(t.Slice(0, int64(n)).Mem())
	out := make([]float64, n)
	for i := range out {
		switch t.DType {
		case device.BF16:
			out[i] = float64(bf16.Widen(binary.LittleEndian.Uint16(b[2*i:])))
		case device.F32:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		case device.I32:
			out[i] = float64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return out
}

// loadInt returns the first n elements of t, which must be an int32 tensor.
func (d *toy) loadInt(t device.Tensor, n int) []int {
	if t.DType != device.I32 {
		panic("toy: " + t.DType.String() + " where int32 belongs")
	}
	out := make([]int, n)
	for i, v := range d.load(t, n) {
		out[i] = int(v)
	}
	return out
}

// store writes v to element i of t, rounded to t's type.
func (d *toy) store(t device.Tensor, i int, v float64) {
	b := d.bytes(t.Slice(int64(i), 1).Mem())
	switch t.DType {
	case device.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
		return
	case device.I32:
		binary.LittleEndian.PutUint32(b, uint32(int32(v)))
		return
	}
	binary.LittleEndian.PutUint16(b, bf16.Round(float32(v)))
}

func (d *toy) storeAll(t device.Tensor, v []float64) {
	for i := range v {
		d.store(t, i, v[i])
	}
}

// disjoint panics if the output tensor of an operation overlaps one of its other tensors.
func disjoint(op string, out device.Tensor, others ...device.Tensor) {
	for _, o := range others {
		if o.None() || out.None() {
			continue
		}
		a, b := out.Mem(), o.Mem()
		if a.Addr < b.Addr+uintptr(b.Bytes) && b.Addr < a.Addr+uintptr(a.Bytes) {
			panic("toy: " + op + " writes over what it reads")
		}
	}
}

// exact panics unless t has n elements.
func exact(op string, t device.Tensor, n int) {
	if t.Len != int64(n) {
		panic(fmt.Sprintf("toy: %s is given %d elements for %d", op, t.Len, n))
	}
}

// Do implements device.Device.
func (d *toy) Do(_ device.Stream, o device.Op) {
	if err := o.Check(); err != nil {
		panic(fmt.Sprintf("toy: %s: %v", o.Name(), err))
	}
	switch a := o.(type) {
	case *op.Activate:
		d.activate(a)
	case *op.ActivateBackward:
		d.activateBackward(a)
	case *op.AddBiasGrad:
		d.addBiasGrad(a)
	case *op.AddRows:
		d.addRows(a)
	case *op.AddNoise:
		d.addNoise(a)
	case *op.AddPositions:
		d.addPositions(a)
	case *op.AddPositionsBackward:
		d.addPositionsBackward(a)
	case *op.Attention:
		d.attention(a)
	case *op.AttentionBackward:
		d.attentionBackward(a)
	case *op.SelectKeys:
		d.selectKeys(a)
	case *op.SparseAttention:
		d.sparseAttention(a)
	case *op.SparseAttentionBackward:
		d.sparseAttentionBackward(a)
	case *op.WeightedBiasGrad:
		d.weightedBiasGrad(a)
	case *op.XIELU:
		y := d.load(a.Y, a.T*a.F)
		oracle.XIELU(y, d.load(a.X, a.T*a.F), d.load(a.Alpha, 2))
		d.storeAll(a.Y, y)
	case *op.XIELUBackward:
		n := a.T * a.F
		dx, y, dalpha := d.load(a.DX, n), d.load(a.Y, n), make([]float64, 2)
		if !a.DAlpha.None() {
			dalpha = d.load(a.DAlpha, 2)
		}
		oracle.XIELUBackward(dx, y, d.load(a.DY, n), d.load(a.X, n), d.load(a.Alpha, 2), dalpha)
		d.storeAll(a.DX, dx)
		d.storeAll(a.Y, y)
		if !a.DAlpha.None() {
			d.storeAll(a.DAlpha, dalpha)
		}
	case *op.Sinks:
		d.sinks(a)
	case *op.SinksGrad:
		d.sinksGrad(a)
	case *op.ShortConv:
		d.shortConv(a)
	case *op.ShortConvBackward:
		d.shortConvBackward(a)
	case *op.GatedDelta:
		d.gatedDelta(a)
	case *op.GatedDeltaBackward:
		d.gatedDeltaBackward(a)
	case *op.SSD:
		d.ssd(a)
	case *op.SSDBackward:
		d.ssdBackward(a)
	case *op.Convert:
		d.convert(a)
	case *op.CrossEntropy:
		d.crossEntropy(a)
	case *op.PreferenceWeights:
		d.preferenceWeights(a)
	case *op.CrossEntropyShard:
		d.crossEntropyShard(a)
	case *op.GLU:
		d.glu(a)
	case *op.GLUBackward:
		d.gluBackward(a)
	case *op.CopyColumns:
		d.copyColumns(a)
	case *op.CopyHeads:
		d.copyHeads(a)
	case *op.SumHeads:
		d.sumHeads(a)
	case *op.GatherRows:
		d.gatherRows(a)
	case *op.LayerNorm:
		d.layerNorm(a)
	case *op.LayerNormBackward:
		d.layerNormBackward(a)
	case *op.MatMul:
		d.matMul(a)
	case *op.RMSNorm:
		d.rmsNorm(a)
	case *op.RMSNormBackward:
		d.rmsNormBackward(a)
	case *op.RoPE:
		d.rope(a)
	case *op.Router:
		d.router(a)
	case *op.RouterBackward:
		d.routerBackward(a)
	case *op.Scale:
		d.scale(a)
	case *op.ScaleRows:
		d.scaleRows(a)
	case *op.ScaleRowsBackward:
		d.scaleRowsBackward(a)
	case *op.ScatterAddRows:
		d.scatterAddRows(a)
	case *op.SortByExpert:
		d.sortByExpert(a)
	default:
		panic("toy: no operation " + o.Name())
	}
}

type toyEvent struct{}

func (toyEvent) Elapsed(device.Event) time.Duration { return 0 }
func (toyEvent) Close()                             {}

type toyStream struct{ d *toy }

func (s toyStream) CopyH2D(dst device.Mem, src []byte) { s.d.up += int64(copy(s.d.bytes(dst), src)) }
func (s toyStream) CopyD2H(dst []byte, src device.Mem) { s.d.down += int64(copy(dst, s.d.bytes(src))) }
func (s toyStream) CopyD2D(dst, src device.Mem)        { copy(s.d.bytes(dst), s.d.bytes(src)) }
func (s toyStream) CopyPeer(device.Device, device.Mem, device.Mem) {
	panic("toy: it reaches no other device")
}
func (s toyStream) Zero(dst device.Mem)  { clear(s.d.bytes(dst)) }
func (s toyStream) Record(device.Event)  {}
func (s toyStream) Wait(device.Event)    {}
func (s toyStream) Notify(f func(error)) { f(nil) }
func (s toyStream) Sync() error          { return nil }
func (s toyStream) Err() error           { return nil }
func (s toyStream) Close() error         { return nil }

func (d *toy) matMul(m *op.MatMul) {
	if m.Batch.N > 0 {
		for i := range m.Batch.N {
			d.matMulOf(m.Product(i))
		}
		return
	}
	exact("MatMul A", m.A, m.M*m.K)
	exact("MatMul B", m.B, m.K*m.N)
	exact("MatMul D", m.D, m.M*m.N)
	disjoint("MatMul", m.D, m.A, m.B, m.Bias)
	if m.A.DType != m.B.DType {
		panic("toy: MatMul of " + m.A.DType.String() + " and " + m.B.DType.String())
	}
	d.matmuls += 2 * int64(m.M) * int64(m.N) * int64(m.K)
	out := make([]float64, m.M*m.N)
	oracle.MatMul(out, d.load(m.A, m.M*m.K), d.load(m.B, m.K*m.N), d.loadAny(m.C, m.M*m.N), d.loadAny(m.Bias, m.N), m.M, m.N, m.K, m.TransA, m.TransB)
	d.storeAll(m.D, out)
}

// matMulOf computes one product of a batch.
func (d *toy) matMulOf(m op.MatMul) {
	d.matmuls += 2 * int64(m.M) * int64(m.N) * int64(m.K)
	load := func(t device.Tensor, x op.Matrix) (v []float64) {
		for r := range x.Rows {
			v = append(v, d.load(t.Slice(int64(r*x.Row), int64(x.Cols)), x.Cols)...)
		}
		return v
	}
	a, b, to := m.Stored()
	var c []float64
	if !m.C.None() {
		c = load(m.C, to)
	}
	out := make([]float64, m.M*m.N)
	oracle.MatMul(out, load(m.A, a), load(m.B, b), c, nil, m.M, m.N, m.K, m.TransA, m.TransB)
	d.storeStrided(m.D, out, m.N, to.Row)
}

// loadAny returns the first n elements of t; nil if t is none.
func (d *toy) loadAny(t device.Tensor, n int) []float64 {
	if t.None() {
		return nil
	}
	return d.load(t, n)
}

func (d *toy) addBiasGrad(a *op.AddBiasGrad) {
	exact("AddBiasGrad db", a.DB, a.N)
	sum := d.load(a.DB, a.N)
	oracle.AddBiasGrad(sum, d.load(a.DY, a.T*a.N), a.T, a.N)
	d.storeAll(a.DB, sum)
}

func (d *toy) rmsNorm(a *op.RMSNorm) {
	if a.Y.Addr != a.X.Addr {
		disjoint("RMSNorm", a.Y, a.X)
	}
	n := oracle.Norm{Rows: a.Rows, Groups: a.Groups, Dim: a.Dim, XStride: a.XStride, YStride: a.YStride, Eps: float64(a.Eps), Offset: float64(a.Offset)}
	rows := func(stride int) int { return (a.Rows-1)*stride + a.Groups*a.Dim }
	y, rstd := d.load(a.Y, rows(a.YStride)), make([]float64, a.Rows*a.Groups)
	oracle.RMSNorm(y, rstd, d.load(a.X, rows(a.XStride)), d.load(a.W, a.Dim), d.loadAny(a.Residual, rows(a.YStride)), n)
	d.storeAll(a.Y, y)
	if !a.RStd.None() {
		d.storeAll(a.RStd, rstd)
	}
}

func (d *toy) rmsNormBackward(a *op.RMSNormBackward) {
	if a.Add || a.DX.Addr != a.DY.Addr {
		disjoint("RMSNormBackward", a.DX, a.DY)
	}
	disjoint("RMSNormBackward", a.DX, a.X)
	n := oracle.Norm{Rows: a.Rows, Groups: a.Groups, Dim: a.Dim, XBStride: a.XStride, DXStride: a.DXStride, DYStride: a.DYStride, Offset: float64(a.Offset), Add: a.Add}
	rows := func(stride int) int { return (a.Rows-1)*stride + a.Groups*a.Dim }
	dx, dw := d.load(a.DX, rows(a.DXStride)), make([]float64, a.Dim)
	if !a.DW.None() {
		dw = d.load(a.DW, a.Dim)
	}
	oracle.RMSNormBackward(dx, dw, d.load(a.DY, rows(a.DYStride)), d.load(a.X, rows(a.XStride)), d.load(a.W, a.Dim), d.load(a.RStd, a.Rows*a.Groups), n)
	d.storeAll(a.DX, dx)
	if !a.DW.None() {
		d.storeAll(a.DW, dw)
	}
}

func (d *toy) rope(a *op.RoPE) {
	x := d.load(a.X, (a.T-1)*a.Stride+(a.Heads-1)*a.Dim+a.Rotary)
	oracle.RoPE(x, d.load(a.Cos, int(a.Cos.Len)), d.load(a.Sin, int(a.Sin.Len)), d.loadIDs(a.Pos, a.T), a.T, a.Heads, a.Dim, a.Rotary, a.Stride, a.Inverse, a.Interleaved)
	d.storeAll(a.X, x)
}

// shape converts a to the shape that the oracle (the float64 reference for operations) takes. It
// also returns the number of (query, key) pairs over all heads.
func (d *toy) shape(a op.AttentionShape, qs, ks int) (s oracle.Shape, seen int64) {
	s = oracle.Shape{CuQ: d.loadIDs(a.CuQ, a.Seqs+1), CuK: d.loadIDs(a.CuK, a.Seqs+1), TQ: a.TQ, Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.Dim,
		Scale: float64(a.Scale), Window: a.Window, Softcap: float64(a.Softcap), QStride: qs, KStride: ks}
	for i := range a.Seqs {
		nq, nk := int(s.CuQ[i+1]-s.CuQ[i]), int(s.CuK[i+1]-s.CuK[i])
		for t := range nq {
			n := nk - nq + t + 1
			if a.Window > 0 {
				n = min(n, a.Window)
			}
			seen += int64(n * a.Heads)
		}
	}
	return s, seen
}

// sparse converts a as shape does; its chosen keys count as pairs.
func (d *toy) sparse(a op.SparseShape, qs, ks int) (s oracle.Shape, seen int64) {
	s, seen = d.shape(a.Chosen(), qs, ks)
	s.Window, s.Keys, s.TopK = 0, d.loadIDs(a.Keys, a.TQ*a.TopK), a.TopK
	return s, seen
}

func (d *toy) sparseAttention(a *op.SparseAttention) {
	exact("SparseAttention O", a.O, a.TQ*a.Heads*a.Values)
	disjoint("SparseAttention", a.O, a.Q, a.K)
	s, seen := d.sparse(a.SparseShape, a.QStride, a.KStride)
	d.attended += 2 * seen * int64(a.Dim+a.Values)
	o, lse := make([]float64, a.TQ*a.Heads*a.Values), make([]float64, a.TQ*a.Heads)
	oracle.SparseAttention(o, lse, d.load(a.Q, (a.TQ-1)*a.QStride+a.Heads*a.Dim), d.load(a.K, (a.TK-1)*a.KStride+a.Dim), s, a.Values)
	d.storeAll(a.O, o)
	if !a.LSE.None() {
		d.storeAll(a.LSE, lse)
	}
}

func (d *toy) sparseAttentionBackward(a *op.SparseAttentionBackward) {
	exact("SparseAttentionBackward Delta", a.Delta, a.TQ*a.Heads)
	exact("SparseAttentionBackward Sums", a.Sums, a.SumsLen())
	disjoint("SparseAttentionBackward", a.DQ, a.Q, a.K, a.DO, a.O, a.LSE)
	s, _ := d.sparse(a.SparseShape, a.QStride, a.KStride)
	s.DQStride, s.DKStride = a.Heads*a.Dim, a.Dim
	n := a.TQ * a.Heads
	o, do := d.load(a.O, n*a.Values), d.load(a.DO, n*a.Values)
	dq, dk := make([]float64, n*a.Dim), make([]float64, a.TK*a.Dim)
	oracle.SparseAttentionBackward(dq, dk, do, o, d.load(a.LSE, n), d.load(a.Q, (a.TQ-1)*a.QStride+a.Heads*a.Dim), d.load(a.K, (a.TK-1)*a.KStride+a.Dim), s, a.Values)
	d.storeStrided(a.DQ, dq, a.Heads*a.Dim, a.DQStride)
	d.storeStrided(a.DK, dk, a.Dim, a.DKStride)
}

func (d *toy) attention(a *op.Attention) {
	exact("Attention O", a.O, a.TQ*a.Heads*a.Dim)
	disjoint("Attention", a.O, a.Q, a.K, a.V)
	s, seen := d.shape(a.AttentionShape, a.QStride, a.KStride)
	d.attended += 4 * seen * int64(a.Dim)
	queries, keys := (a.TQ-1)*a.QStride+a.Heads*a.Dim, (a.TK-1)*a.KStride+a.KVHeads*a.Dim
	o, lse := d.load(a.O, a.TQ*a.Heads*a.Dim), make([]float64, a.TQ*a.Heads)
	oracle.Attention(o, lse, d.load(a.Q, queries), d.load(a.K, keys), d.load(a.V, keys), s)
	d.storeAll(a.O, o)
	if !a.LSE.None() {
		d.storeAll(a.LSE, lse)
	}
}

// selectKeys computes the choice of an indexer.
func (d *toy) selectKeys(a *op.SelectKeys) {
	keys := make([]int32, a.TQ*a.TopK)
	oracle.SelectKeys(keys, d.load(a.Q, a.TQ*a.Heads*a.Dim), d.load(a.K, a.TK*a.Dim), d.load(a.W, a.TQ*a.Heads), oracle.Selection{CuQ: d.loadIDs(a.CuQ, a.Seqs+1),
		CuK: d.loadIDs(a.CuK, a.Seqs+1), Heads: a.Heads, Dim: a.Dim, TopK: a.TopK, Scale: float64(a.Scale), WScale: float64(a.WScale)})
	for i, key := range keys {
		d.store(a.Keys, i, float64(key))
	}
}

func (d *toy) attentionBackward(a *op.AttentionBackward) {
	exact("AttentionBackward Delta", a.Delta, a.TQ*a.Heads)
	disjoint("AttentionBackward", a.DQ, a.Q, a.K, a.V, a.DO, a.O, a.LSE)
	s, _ := d.shape(a.AttentionShape, a.QStride, a.KStride)
	s.DQStride, s.DKStride = a.Heads*a.Dim, a.KVHeads*a.Dim
	queries, keys := (a.TQ-1)*a.QStride+a.Heads*a.Dim, (a.TK-1)*a.KStride+a.KVHeads*a.Dim
	o, do := d.load(a.O, a.TQ*a.Heads*a.Dim), d.load(a.DO, a.TQ*a.Heads*a.Dim)
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	dq, dk, dv := make([]float64, a.TQ*wide), make([]float64, a.TK*narrow), make([]float64, a.TK*narrow)
	oracle.AttentionBackward(dq, dk, dv, do, o, d.load(a.LSE, a.TQ*a.Heads), d.load(a.Q, queries), d.load(a.K, keys), d.load(a.V, keys), s)
	for at := range a.TQ * a.Heads {
		var delta float64
		for e := range a.Dim {
			delta += do[at*a.Dim+e] * o[at*a.Dim+e]
		}
		d.store(a.Delta, at%a.Heads*a.TQ+at/a.Heads, delta)
	}
	d.storeStrided(a.DQ, dq, wide, a.DQStride)
	d.storeStrided(a.DK, dk, narrow, a.DKStride)
	d.storeStrided(a.DV, dv, narrow, a.DKStride)
}

func (d *toy) storeStrided(t device.Tensor, v []float64, width, stride int) {
	for i := range v {
		d.store(t, i/width*stride+i%width, v[i])
	}
}

func (d *toy) glu(a *op.GLU) {
	exact("GLU y", a.Y, a.T*a.F)
	disjoint("GLU", a.Y, a.GU)
	gu, y := d.load(a.GU, 2*a.T*a.F), make([]float64, a.T*a.F)
	if a.Activation == op.CutSiLU {
		oracle.CutGLU(float64(a.Cut.Alpha), float64(a.Cut.Limit), y, gu, a.T, a.F)
	} else {
		oracle.GLU(activation(a.Activation), y, gu, a.T, a.F)
	}
	d.storeAll(a.Y, y)
}

func (d *toy) gluBackward(a *op.GLUBackward) {
	exact("GLUBackward dgu", a.DGU, 2*a.T*a.F)
	disjoint("GLUBackward", a.DGU, a.DY, a.Y)
	gu, dy, y := d.load(a.GU, 2*a.T*a.F), d.load(a.DY, a.T*a.F), make([]float64, a.T*a.F)
	if a.Activation == op.CutSiLU {
		oracle.CutGLUBackward(float64(a.Cut.Alpha), float64(a.Cut.Limit), gu, y, dy, gu, a.T, a.F)
	} else {
		oracle.GLUBackward(activation(a.Activation), gu, y, dy, gu, a.T, a.F)
	}
	d.storeAll(a.DGU, gu)
	if !a.Y.None() {
		d.storeAll(a.Y, y)
	}
}

func activation(f op.Activation) oracle.Activation {
	return [...]oracle.Activation{op.SiLU: oracle.SiLU, op.GELUTanh: oracle.GELUTanh, op.GELU: oracle.GELU, op.SigmoidGate: oracle.Sigmoid, op.ReLU: oracle.ReLU,
		op.SquaredReLU: oracle.SquaredReLU}[f]
}

func (d *toy) copyColumns(a *op.CopyColumns) {
	dst := d.load(a.Dst, int(a.Dst.Len))
	oracle.CopyColumns(dst, d.load(a.Src, int(a.Src.Len)), a.T, a.C, a.DstStride, a.SrcStride)
	d.storeAll(a.Dst, dst)
}

func (d *toy) copyHeads(a *op.CopyHeads) {
	disjoint("CopyHeads", a.Dst, a.Src)
	dst := d.load(a.Dst, int(a.Dst.Len))
	oracle.CopyHeads(dst, d.load(a.Src, int(a.Src.Len)), a.T, a.Heads, a.C, a.Zeros, oracle.Heads{Stride: a.DstStride, Head: a.DstHead}, oracle.Heads{Stride: a.SrcStride, Head: a.SrcHead})
	d.storeAll(a.Dst, dst)
}

func (d *toy) sumHeads(a *op.SumHeads) {
	disjoint("SumHeads", a.Dst, a.Src)
	dst := d.load(a.Dst, int(a.Dst.Len))
	oracle.SumHeads(dst, d.load(a.Src, int(a.Src.Len)), a.T, a.Heads, a.C, a.DstStride, oracle.Heads{Stride: a.SrcStride, Head: a.SrcHead})
	d.storeAll(a.Dst, dst)
}

func (d *toy) gatherRows(a *op.GatherRows) {
	dst := make([]float64, a.T*a.C)
	oracle.GatherRows(dst, d.load(a.Src, int(a.Src.Len)), d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.Dst, dst)
}

func (d *toy) scatterAddRows(a *op.ScatterAddRows) {
	sum := d.load(a.DRows, a.U*a.C)
	oracle.ScatterAddRows(sum, d.load(a.DY, a.T*a.C), d.loadIDs(a.Start, a.U+1), d.loadIDs(a.Pos, a.T), a.C)
	d.storeAll(a.DRows, sum)
}

func capped(x []float64, limit float32) (y, slopes []float64) {
	slopes = make([]float64, len(x))
	for i, v := range x {
		x[i], slopes[i] = oracle.Softcap(v, float64(limit))
	}
	return x, slopes
}

// takenBy returns the term that a token's loss subtracts from the log-sum-exp: the target's logit,
// with label smoothing mixed with all logits. target below 0: the target is not in this part of the
// vocabulary.
func takenBy(t op.LossTerms, logits []float64, target, vocab int) (sum float64) {
	if target >= 0 {
		sum = (1 - float64(t.Smoothing)) * logits[target]
	}
	if t.Smoothing > 0 {
		for _, x := range logits {
			sum += float64(t.Smoothing) / float64(vocab) * x
		}
	}
	return sum
}

// logitGrad returns the gradient of a token's loss with respect to the logit x. target: x is the
// target's logit.
func logitGrad(t op.LossTerms, x, lse float64, vocab int, target bool) float64 {
	p := math.Exp(x-lse) * (1 + 2*float64(t.Z)*lse)
	if t.Smoothing > 0 {
		p -= float64(t.Smoothing) / float64(vocab)
	}
	if target {
		p -= 1 - float64(t.Smoothing)
	}
	return p
}

// weight returns element t of weights; 1 if weights is none.
func (d *toy) weight(weights device.Tensor, t int) float64 {
	if weights.None() {
		return 1
	}
	return d.load(weights.Slice(int64(t), 1), 1)[0]
}

func (d *toy) preferenceWeights(a *op.PreferenceWeights) {
	exact("PreferenceWeights", a.Losses, a.T)
	weights, cu := make([]float64, a.T), d.loadIDs(a.Cu, 2*a.Pairs+1)
	oracle.PreferenceWeights(weights, d.load(a.Losses, a.T), d.loadIDs(a.Targets, a.T), cu, d.load(a.Reference, 2*a.Pairs),
		int(a.Loss.Kind), float64(a.Loss.Beta), float64(a.Loss.Smoothing), float64(a.Likelihood))
	d.storeAll(a.Weights, weights)
}

func (d *toy) crossEntropyShard(a *op.CrossEntropyShard) {
	exact("CrossEntropyShard", a.Logits, a.T*a.V)
	x := d.load(a.Logits, a.T*a.V)
	for t, target := range d.loadInt(a.Targets, a.T) {
		row, slopes := capped(x[t*a.V:(t+1)*a.V], a.Softcap)
		at := target - a.From
		here := at >= 0 && at < a.V
		if a.Gradient {
			lse, scale := d.load(a.LSE.Slice(int64(t), 1), 1)[0], float64(a.Scale)*d.weight(a.Weights, t)
			for i, v := range row {
				p := logitGrad(a.Terms, v, lse, a.Vocab, i == at)
				if target == op.IgnoreIndex {
					p = 0
				}
				d.store(a.Logits, t*a.V+i, p*scale*slopes[i])
			}
			continue
		}
		lse := oracle.LogSumExp(row)
		if !a.First {
			lse = oracle.LogSumExp([]float64{d.load(a.LSE.Slice(int64(t), 1), 1)[0], lse})
		}
		d.store(a.LSE, t, lse)
		taken := 0.0
		if !a.First {
			taken = d.load(a.Losses.Slice(int64(t), 1), 1)[0]
		}
		if !here {
			at = -1
		}
		d.store(a.Losses, t, taken+takenBy(a.Terms, row, at, a.Vocab))
		switch {
		case a.Last && target == op.IgnoreIndex:
			d.store(a.Losses, t, 0)
		case a.Last:
			d.store(a.Losses, t, lse-d.load(a.Losses.Slice(int64(t), 1), 1)[0]+float64(a.Terms.Z)*lse*lse)
		}
	}
}

func (d *toy) crossEntropy(a *op.CrossEntropy) {
	exact("CrossEntropy", a.Logits, a.T*a.V)
	x, targets, losses := d.load(a.Logits, a.T*a.V), d.loadIDs(a.Targets, a.T), make([]float64, a.T)
	for t := range a.T {
		oracle.CrossEntropy(x[t*a.V:(t+1)*a.V], targets[t:t+1], losses[t:t+1], a.V, float64(a.Scale)*d.weight(a.Weights, t), float64(a.Softcap),
			float64(a.Terms.Smoothing), float64(a.Terms.Z), a.ForwardOnly)
	}
	d.storeAll(a.Losses, losses)
	if !a.ForwardOnly {
		d.storeAll(a.Logits, x)
	}
}

func (d *toy) convert(a *op.Convert) {
	d.storeAll(a.Dst, d.load(a.Src, int(a.N)))
}

// loadIDs returns the first n elements of t, an int32 tensor.
func (d *toy) loadIDs(t device.Tensor, n int) []int32 {
	v := make([]int32, n)
	for i, x := range d.loadInt(t, n) {
		v[i] = int32(x)
	}
	return v
}

func (d *toy) storeIDs(t device.Tensor, v []int32) {
	b := d.bytes(t.Slice(0, int64(len(v))).Mem())
	for i, x := range v {
		for k := range 4 {
			b[4*i+k] = byte(uint32(x) >> (8 * k))
		}
	}
}

func (d *toy) scale(a *op.Scale) {
	if a.Rows == 0 {
		v := d.load(a.X, int(a.N))
		oracle.Scale(v, float64(a.Factor))
		d.storeAll(a.X, v)
		return
	}
	v := d.load(a.X, (a.Rows-1)*a.Stride+int(a.N))
	for r := range a.Rows {
		oracle.Scale(v[r*a.Stride:][:a.N], float64(a.Factor))
	}
	d.storeAll(a.X, v)
}

func (d *toy) scaleRows(a *op.ScaleRows) {
	exact("ScaleRows", a.X, a.T*a.C)
	x := d.load(a.X, a.T*a.C)
	oracle.ScaleRows(x, d.load(a.W, a.P), d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.X, x)
}

func (d *toy) scaleRowsBackward(a *op.ScaleRowsBackward) {
	exact("ScaleRowsBackward", a.Y, a.T*a.C)
	disjoint("ScaleRowsBackward", a.DY, a.Y)
	y, dy, dw := d.load(a.Y, a.T*a.C), d.load(a.DY, a.T*a.C), d.load(a.DW, a.P)
	oracle.ScaleRowsBackward(dy, y, d.load(a.W, a.P), dw, d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.Y, y)
	d.storeAll(a.DY, dy)
	d.storeAll(a.DW, dw)
}

func (d *toy) weightedBiasGrad(a *op.WeightedBiasGrad) {
	exact("WeightedBiasGrad", a.DY, a.T*a.C)
	db, dw := d.load(a.DB, a.C), d.load(a.DW, a.P)
	oracle.WeightedBiasGrad(db, dw, d.load(a.DY, a.T*a.C), d.load(a.B, a.C), d.load(a.W, a.P), d.loadIDs(a.Index, a.T))
	d.storeAll(a.DB, db)
	d.storeAll(a.DW, dw)
}

func (d *toy) sinks(a *op.Sinks) {
	exact("Sinks", a.O, a.T*a.Heads*a.Dim)
	o, lse := d.load(a.O, a.T*a.Heads*a.Dim), d.load(a.LSE, a.Heads*a.T)
	oracle.Sinks(o, lse, d.load(a.Sinks, a.Heads), a.T, a.Dim)
	d.storeAll(a.O, o)
	d.storeAll(a.LSE, lse)
}

func (d *toy) sinksGrad(a *op.SinksGrad) {
	exact("SinksGrad", a.LSE, a.Heads*a.T)
	ds := d.load(a.DSinks, a.Heads)
	oracle.SinksGrad(ds, d.load(a.LSE, a.Heads*a.T), d.load(a.Delta, a.Heads*a.T), d.load(a.Sinks, a.Heads), a.T)
	d.storeAll(a.DSinks, ds)
}

func (d *toy) addRows(a *op.AddRows) {
	exact("AddRows", a.Src, a.T*a.C)
	disjoint("AddRows", a.Dst, a.Src)
	ids, seen := d.loadIDs(a.Index, a.T), map[int32]bool{}
	for _, u := range ids {
		if seen[u] {
			panic("toy: AddRows is given a row twice")
		}
		seen[u] = true
	}
	sum, src := d.load(a.Dst, a.U*a.C), d.load(a.Src, a.T*a.C)
	switch {
	case a.W.None():
		oracle.AddRows(sum, src, ids, a.C)
	default:
		var bias []float64
		if !a.Bias.None() {
			bias = d.load(a.Bias, a.C)
		}
		oracle.AddWeightedRows(sum, src, bias, d.load(a.W, a.P), ids, d.loadIDs(a.Pairs, a.T), a.C)
	}
	d.storeAll(a.Dst, sum)
}

func (d *toy) router(a *op.Router) {
	n, k := a.T*a.Rule.Logits(a.E), a.T*a.Rule.Chosen(a.K)
	exact("Router", a.Logits, n)
	ids, weights, sums := make([]int32, k), make([]float64, k), make([]float64, a.E)
	if !a.ProbSum.None() {
		sums = d.load(a.ProbSum, a.E)
	}
	var bias []float64
	if !a.Bias.None() {
		bias = d.load(a.Bias, a.E)
	}
	oracle.Router(d.load(a.Logits, n), bias, ids, weights, sums, a.E, a.K, a.Normalize, oracle.RouterRule(a.Rule))
	d.storeIDs(a.IDs, ids)
	d.storeAll(a.Weights, weights)
	if !a.ProbSum.None() {
		d.storeAll(a.ProbSum, sums)
	}
}

func (d *toy) routerBackward(a *op.RouterBackward) {
	n, k := a.T*a.Rule.Logits(a.E), a.T*a.Rule.Chosen(a.K)
	exact("RouterBackward", a.DLogits, n)
	dlogits := make([]float64, n)
	var counts []int32
	if !a.Counts.None() {
		counts = d.loadIDs(a.Counts, a.E)
	}
	oracle.RouterBackward(dlogits, d.load(a.Logits, n), d.loadIDs(a.IDs, k), d.load(a.DWeights, k), counts,
		a.E, a.K, a.Normalize, oracle.RouterRule(a.Rule), float64(a.AuxScale))
	d.storeAll(a.DLogits, dlogits)
}

func (d *toy) sortByExpert(a *op.SortByExpert) {
	exact("SortByExpert", a.IDs, a.N)
	order, rows, offsets, counts := make([]int32, a.N), make([]int32, a.N), make([]int32, a.E+1), make([]int32, a.E)
	if !a.Counts.None() {
		counts = d.loadIDs(a.Counts, a.E)
	}
	oracle.SortByExpert(d.loadIDs(a.IDs, a.N), order, rows, offsets, counts, a.E, a.K)
	d.storeIDs(a.Order, order)
	d.storeIDs(a.Rows, rows)
	d.storeIDs(a.Offsets, offsets)
	if !a.Counts.None() {
		d.storeIDs(a.Counts, counts)
	}
}

func (d *toy) addNoise(a *op.AddNoise) {
	exact("AddNoise", a.X, a.T*a.C)
	exact("AddNoise Cu", a.Cu, a.Seqs+1)
	x := d.load(a.X, a.T*a.C)
	oracle.AddNoise(x, d.loadIDs(a.Cu, a.Seqs+1), a.From, a.First, a.Step, a.C, a.Seed, float64(a.Scale))
	d.storeAll(a.X, x)
}

func (d *toy) layerNorm(a *op.LayerNorm) {
	exact("LayerNorm x", a.X, a.Rows*a.Dim)
	exact("LayerNorm y", a.Y, a.Rows*a.Dim)
	if a.Y.Addr != a.X.Addr {
		disjoint("LayerNorm", a.Y, a.X)
	}
	var b []float64
	if !a.B.None() {
		b = d.load(a.B, a.Dim)
	}
	y, stats := make([]float64, a.Rows*a.Dim), make([]float64, 2*a.Rows)
	oracle.LayerNorm(y, stats, d.load(a.X, a.Rows*a.Dim), d.load(a.W, a.Dim), b, float64(a.Eps))
	d.storeAll(a.Y, y)
	if !a.Stats.None() {
		exact("LayerNorm stats", a.Stats, 2*a.Rows)
		d.storeAll(a.Stats, stats)
	}
}

func (d *toy) layerNormBackward(a *op.LayerNormBackward) {
	exact("LayerNormBackward dx", a.DX, a.Rows*a.Dim)
	if a.Add || a.DX.Addr != a.DY.Addr {
		disjoint("LayerNormBackward", a.DX, a.DY)
	}
	disjoint("LayerNormBackward", a.DX, a.X)
	dx, dw := make([]float64, a.Rows*a.Dim), d.load(a.DW, a.Dim)
	if a.Add {
		dx = d.load(a.DX, len(dx))
	}
	oracle.LayerNormBackward(dx, dw, d.load(a.DY, len(dx)), d.load(a.X, len(dx)), d.load(a.W, a.Dim), d.load(a.Stats, 2*a.Rows), a.Add)
	d.storeAll(a.DX, dx)
	d.storeAll(a.DW, dw)
}

func (d *toy) activate(a *op.Activate) {
	exact("Activate y", a.Y, a.T*a.F)
	disjoint("Activate", a.Y, a.X)
	y := make([]float64, a.T*a.F)
	oracle.Activate(activation(a.Activation), y, d.load(a.X, a.T*a.F))
	d.storeAll(a.Y, y)
}

func (d *toy) activateBackward(a *op.ActivateBackward) {
	exact("ActivateBackward dx", a.DX, a.T*a.F)
	disjoint("ActivateBackward", a.DX, a.DY, a.Y)
	dx, y := make([]float64, a.T*a.F), make([]float64, a.T*a.F)
	oracle.ActivateBackward(activation(a.Activation), dx, y, d.load(a.DY, a.T*a.F), d.load(a.X, a.T*a.F))
	d.storeAll(a.DX, dx)
	if !a.Y.None() {
		d.storeAll(a.Y, y)
	}
}

func (d *toy) addPositions(a *op.AddPositions) {
	exact("AddPositions x", a.X, a.T*a.C)
	exact("AddPositions y", a.Y, a.T*a.C)
	y, pos := make([]float64, a.T*a.C), make([]int32, a.T)
	for t, p := range d.loadInt(a.Pos, a.T) {
		pos[t] = int32(p)
	}
	oracle.AddPositions(y, d.load(a.X, a.T*a.C), d.load(a.Table, int(a.Table.Len)), pos, a.C)
	d.storeAll(a.Y, y)
}

func (d *toy) addPositionsBackward(a *op.AddPositionsBackward) {
	exact("AddPositionsBackward dy", a.DY, a.T*a.C)
	sum, cu := d.load(a.DTable, a.Longest*a.C), make([]int32, a.Seqs+1)
	for i, at := range d.loadInt(a.Cu, a.Seqs+1) {
		cu[i] = int32(at)
	}
	oracle.AddPositionsBackward(sum, d.load(a.DY, a.T*a.C), cu, a.From, a.T, a.C)
	for i, v := range sum {
		d.store(a.DTable, i, v)
	}
}

func (d *toy) shortConv(a *op.ShortConv) {
	disjoint("ShortConv", a.Y, a.X, a.Tail)
	exact("ShortConv", a.Y, a.T*a.C)
	d.recurred += 2 * int64(a.T*a.C*a.Taps)
	width := op.ConvWidth(a.C, a.Gated)
	x, y := d.load(a.X, (a.T-1)*a.XStride+width), make([]float64, a.T*a.C)
	var tail []float64
	if !a.Tail.None() {
		tail = d.load(a.Tail, (a.Taps-1)*width)
	}
	d.conv(a.W, a.Bias, a.Cu, a.Seqs, a.C, a.Taps, a.XStride, a.Gated).ShortConv(y, x, tail)
	d.storeAll(a.Y, y)
	if tail != nil {
		for t := range a.T {
			tail = append(tail, x[t*a.XStride:][:width]...)
		}
		d.storeAll(a.Tail, tail[a.T*width:])
	}
}

func (d *toy) conv(w, bias, cu device.Tensor, seqs, channels, taps, stride int, gated bool) oracle.Conv {
	c := oracle.Conv{W: d.load(w, channels*taps), Cu: d.loadIDs(cu, seqs+1), Channels: channels, Taps: taps, Stride: stride, Gated: gated}
	if !bias.None() {
		c.Bias = d.load(bias, channels)
	}
	return c
}

func (d *toy) shortConvBackward(a *op.ShortConvBackward) {
	disjoint("ShortConvBackward", a.DX, a.X, a.DY)
	width := op.ConvWidth(a.C, a.Gated)
	dx, dw := make([]float64, a.T*width), d.load(a.DW, a.C*a.Taps)
	var dbias []float64
	if !a.DBias.None() {
		dbias = d.load(a.DBias, a.C)
	}
	d.conv(a.W, a.Bias, a.Cu, a.Seqs, a.C, a.Taps, a.XStride, a.Gated).ShortConvBackward(dx, dw, dbias, d.load(a.DY, a.T*a.C),
		d.load(a.X, (a.T-1)*a.XStride+width), width)
	d.storeStrided(a.DX, dx, width, a.DXStride)
	d.storeAll(a.DW, dw)
	if dbias != nil {
		d.storeAll(a.DBias, dbias)
	}
}

func (d *toy) delta(a *op.DeltaShape, rates device.Tensor) oracle.Delta {
	o := oracle.Delta{Cu: d.loadIDs(a.Cu, a.Seqs+1), KeyHeads: a.KeyHeads, Heads: a.Heads, KeyDim: a.KeyDim, ValueDim: a.ValueDim, GateStride: a.GateStride,
		ByChannel: a.ByChannel}
	if a.ByChannel {
		o.A, o.DA = d.load(rates, a.T*a.Decays()), make([]float64, a.T*a.Decays())
	}
	return o
}

func (d *toy) scan(a *op.SSDShape) oracle.SSD {
	return oracle.SSD{Cu: d.loadIDs(a.Cu, a.Seqs+1), Groups: a.Groups, Heads: a.Heads, HeadDim: a.HeadDim, StateDim: a.StateDim, DtStride: a.DtStride,
		DtMin: float64(a.DtMin), DtMax: float64(a.DtMax)}
}

func (d *toy) ssd(a *op.SSD) {
	disjoint("SSD", a.O, a.XBC, a.Dt, a.States, a.Last)
	exact("SSD", a.States, a.StatesLen())
	d.recurred += 4 * int64(a.T*a.Heads*a.HeadDim*a.StateDim)
	o, states := make([]float64, a.T*a.Heads*a.HeadDim), make([]float64, a.StatesLen())
	var last []float64
	if !a.Last.None() {
		last = d.load(a.Last, a.Heads*a.HeadDim*a.StateDim)
	}
	d.scan(&a.SSDShape).SSD(o, states, last, d.load(a.XBC, a.T*a.Width()), d.load(a.Dt, (a.T-1)*a.DtStride+a.Heads), d.load(a.ALog, a.Heads),
		d.load(a.DtBias, a.Heads), d.load(a.D, a.Heads))
	d.storeAll(a.O, o)
	d.storeAll(a.States, states)
	if last != nil {
		d.storeAll(a.Last, last)
	}
}

func (d *toy) ssdBackward(a *op.SSDBackward) {
	disjoint("SSDBackward", a.DXBC, a.XBC, a.DO, a.Dt, a.States, a.DStates)
	disjoint("SSDBackward", a.DDt, a.Dt, a.DO)
	exact("SSDBackward", a.States, a.StatesLen())
	exact("SSDBackward", a.DStates, a.StatesLen())
	dxbc, ddt := make([]float64, a.T*a.Width()), make([]float64, a.T*a.DtStride)
	dA, dT, dD := d.load(a.DALog, a.Heads), d.load(a.DDtBias, a.Heads), d.load(a.DD, a.Heads)
	d.scan(&a.SSDShape).SSDBackward(dxbc, ddt, dA, dT, dD, d.load(a.DO, a.T*a.Heads*a.HeadDim), d.load(a.XBC, a.T*a.Width()),
		d.load(a.Dt, (a.T-1)*a.DtStride+a.Heads), d.load(a.ALog, a.Heads), d.load(a.DtBias, a.Heads), d.load(a.D, a.Heads))
	d.storeAll(a.DXBC, dxbc)
	steps := make([]float64, 0, a.T*a.Heads)
	for t := range a.T {
		steps = append(steps, ddt[t*a.DtStride:][:a.Heads]...)
	}
	d.storeStrided(a.DDt, steps, a.Heads, a.DtStride)
	d.storeAll(a.DALog, dA)
	d.storeAll(a.DDtBias, dT)
	d.storeAll(a.DD, dD)
}

func (d *toy) gatedDelta(a *op.GatedDelta) {
	disjoint("GatedDelta", a.O, a.QKV, a.Gates, a.States, a.Last)
	d.recurred += 6 * int64(a.T*a.Heads*a.KeyDim*a.ValueDim)
	o := make([]float64, a.T*a.Heads*a.ValueDim)
	var states, last []float64
	if !a.States.None() {
		exact("GatedDelta", a.States, a.StatesLen())
		states = d.load(a.States, a.StatesLen())
	}
	if !a.Last.None() {
		last = d.load(a.Last, a.Heads*a.KeyDim*a.ValueDim)
	}
	d.delta(&a.DeltaShape, a.A).GatedDelta(o, states, last, d.load(a.QKV, a.T*a.Width()), d.load(a.Gates, a.T*a.GateStride), d.load(a.ALog, a.Heads),
		d.load(a.DtBias, a.Decays()))
	d.storeAll(a.O, o)
	d.storeAll(a.States, states)
	d.storeAll(a.Last, last)
}

func (d *toy) gatedDeltaBackward(a *op.GatedDeltaBackward) {
	disjoint("GatedDeltaBackward", a.DQKV, a.QKV, a.DO, a.Gates)
	disjoint("GatedDeltaBackward", a.DGates, a.Gates, a.DO)
	exact("GatedDeltaBackward", a.States, a.StatesLen())
	dqkv, dgates, dA, dT := make([]float64, a.T*a.Width()), make([]float64, a.T*a.GateStride), d.load(a.DALog, a.Heads), d.load(a.DDtBias, a.Decays())
	rule := d.delta(&a.DeltaShape, a.A)
	rule.GatedDeltaBackward(dqkv, dgates, dA, dT, d.load(a.DO, a.T*a.Heads*a.ValueDim), d.load(a.QKV, a.T*a.Width()), d.load(a.Gates, a.T*a.GateStride),
		d.load(a.ALog, a.Heads), d.load(a.DtBias, a.Decays()))
	d.storeAll(a.DQKV, dqkv)
	d.storeAll(a.DGates, dgates)
	if a.ByChannel {
		d.storeAll(a.DA, rule.DA)
	}
	d.storeAll(a.DALog, dA)
	d.storeAll(a.DDtBias, dT)
}
