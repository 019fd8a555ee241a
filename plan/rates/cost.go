package rates

import (
	"math"

	"mt/device"
	"mt/device/op"
)

// Cost is the cost of an operation while nothing else runs on the device.
type Cost struct {
	Seconds float64
	Bytes   float64 // bytes of device memory read and written
	Cores   float64 // cores of the CPU device kept busy; 0: all
}

// Costs computes the costs of operations on a device. It caches the rates of shapes of products and is not safe for
// concurrent use.
type Costs struct {
	device   *Device
	products map[shape]float64 // cache: seconds per FLOP, by shape
}

// shape has the properties of a matrix product on which its rate depends, as a key of the cache.
type shape struct {
	m, n, k        int
	transA, transB bool
	dtype          device.DType
}

// NewCosts returns the costs of m's device. m must have passed Check.
func NewCosts(m *Machine) *Costs {
	return &Costs{device: &m.Device, products: map[shape]float64{}}
}

// Op returns how long o takes alone on the device, and what it uses meanwhile.
func (c *Costs) Op(o device.Op) Cost {
	switch o := o.(type) {
	case *op.MatMul:
		return c.product(o)
	case *op.Attention:
		return c.attention(&o.AttentionShape, products(&o.AttentionShape, 2), o.Q.DType, o.Bytes(), false)
	case *op.AttentionBackward:
		return c.attention(&o.AttentionShape, products(&o.AttentionShape, 5), o.Q.DType, o.Bytes(), true)
	case *op.SelectKeys: // the products of half of all pairs, which the causal mask leaves
		cost := c.product(&op.MatMul{M: o.TQ * o.Heads, N: (o.MaxK + 1) / 2, K: o.Dim, A: o.Q, B: o.K, D: o.W, TransB: true})
		cost.Bytes = float64(o.Bytes())
		return cost
	case *op.SparseAttention:
		return c.sparse(&o.SparseShape, o, o.Q.DType, o.Bytes(), false)
	case *op.SparseAttentionBackward:
		return c.sparse(&o.SparseShape, o, o.Q.DType, o.Bytes(), true)
	case op.Mover:
		return c.Moved(o.Name(), o.Bytes())
	}
	return Cost{Seconds: c.device.Launch / 1e6}
}

// Moved returns the cost of an operation that device memory limits, not computation. The operation
// has the given name in Device.Ops, and reads and writes the given bytes.
func (c *Costs) Moved(name string, bytes int64) Cost {
	if r, ok := c.device.Ops[name]; ok {
		return r.Cost(float64(bytes))
	}
	return Cost{Seconds: c.device.Launch/1e6 + float64(bytes)/(c.device.Bandwidth*1e9), Bytes: float64(bytes)}
}

// Cost returns the cost of an operation of kind o that reads and writes the given bytes.
func (o Op) Cost(bytes float64) Cost {
	return Cost{Seconds: o.Fixed/1e6 + bytes/(o.Rate*1e9), Bytes: bytes, Cores: o.Cores}
}

// Line fits an operation's fixed cost and rate to two measurements: seconds and bytes of a smaller
// size, then of a larger one. The rate is the additional bytes divided by the additional time. The
// fixed cost is the rest of the smaller measurement's time. Other programs may disturb the
// measurements, so a rate above twice the larger measurement's own is replaced by that one.
func Line(seconds, bytes []float64) Op {
	rate, alone := (bytes[1]-bytes[0])/(seconds[1]-seconds[0]), bytes[1]/seconds[1]
	if !(rate > 0 && rate <= 2*alone) {
		rate = alone
	}
	return Op{Fixed: Round(max(0, seconds[0]-bytes[0]/rate) * 1e6), Rate: Round(rate / 1e9)}
}

func (c *Costs) product(p *op.MatMul) Cost {
	_, _, flops := p.MostWork()
	out := Cost{Bytes: float64(p.Bytes())}
	if flops > 0 {
		out.Seconds = flops * c.perFLOP(shape{p.M * max(1, p.Batch.N), p.N, p.K, p.TransA, p.TransB, p.A.DType})
	}
	out.Seconds = c.device.Launch/1e6 + max(out.Seconds, out.Bytes/(c.device.Bandwidth*1e9))
	return out
}

// perFLOP returns the seconds that one FLOP takes in a product of shape s, from the device's rates of the most similar
// shapes.
func (c *Costs) perFLOP(s shape) float64 {
	if t, ok := c.products[s]; ok {
		return t
	}
	table := c.device.Products[name(s.dtype)]
	if len(table) == 0 { // the device has no rates in this dtype, but small products, such as a router's, may use it: take the other dtype's
		for _, table = range c.device.Products {
		}
	}
	t := between(len(table), func(i int) (distance, seconds float64) {
		p := table[i]
		seconds = 1 / (p.Rate * 1e12)
		if p.M == 0 {
			return largeDistance, seconds / filled(s)
		}
		distance = square(math.Log(float64(s.m)/float64(p.M))) + square(math.Log(float64(s.n)/float64(p.N))) + square(math.Log(float64(s.k)/float64(p.K)))
		if s.transA != p.TransA || s.transB != p.TransB {
			distance += otherTranspose
		}
		return distance, seconds
	})
	c.products[s] = t
	return t
}

// The interpolation between measured shapes weights each one by 1/d². The distance d is a sum of
// squared differences between the logarithms of M, N and K. These constants are its value, or a
// part of it, in cases that these extents do not cover.
const (
	largeDistance  = 16 // from any shape to a table entry without a shape, which is for large products
	otherTranspose = 9  // added if other operands are transposed
)

// filled returns how full the output tiles of a matrix product are, from 0 to 1. A GPU divides the
// output into tiles of 128 × 128, and a partly filled tile takes as long as a full one. Rates
// without a shape hold for full tiles.
func filled(s shape) float64 {
	const tile = 128
	part := func(n int) float64 { return float64(n) / float64((n+tile-1)/tile*tile) }
	return part(s.m) * part(s.n)
}

func square(x float64) float64 { return x * x }

// between interpolates among n measured entries. entry(i) returns entry i's distance from the
// wanted shape and its value. The result is the geometric mean of the values with weights
// 1/distance². If a distance is 0, the result is that entry's value.
func between(n int, entry func(i int) (distance, value float64)) float64 {
	var sum, weights float64
	for i := range n {
		d, v := entry(i)
		if d < 1e-9 {
			return v
		}
		w := 1 / (d * d)
		sum += w * math.Log(v)
		weights += w
	}
	return math.Exp(sum / weights)
}

// products returns the FLOPs of n matrix products of attention.
func products(a *op.AttentionShape, n float64) float64 {
	return n * 2 * a.Pairs() * float64(a.Heads) * float64(a.Dim)
}

// sparse returns the cost of attention o to chosen keys. Its kernels compute dense tiles of the chosen keys' rows, so they
// have the rates of the kernels for the widest heads whose warps do not share rows. There are no kernels for sm_90a. So a
// GPU whose rates are those of sm_90a kernels takes sparseSlower times as long.
func (c *Costs) sparse(a *op.SparseShape, o op.Worker, dtype device.DType, bytes int64, backward bool) Cost {
	few := a.Chosen()
	few.Dim = min(a.Dim, narrowHead)
	_, flops := o.Work()
	if c.device.SM90a {
		flops *= sparseSlower
	}
	return c.attention(&few, flops, dtype, bytes, backward)
}

// sparseSlower is how many times longer a FLOP takes in attention to chosen keys than in sm_90a kernels. On an H100 the
// emulator counts 149 TFLOP/s in the forward, and 477 with all keys in heads of 256.
const sparseSlower = 3

func (c *Costs) attention(a *op.AttentionShape, flops float64, dtype device.DType, bytes int64, backward bool) Cost {
	out := Cost{Bytes: float64(bytes), Seconds: c.device.Launch / 1e6}
	if flops <= 0 {
		return out
	}
	table := alike(c.device.Attention[name(dtype)], a.Dim)
	length := float64(a.TK) / float64(a.Seqs)
	if a.Window > 0 {
		length = min(length, float64(a.Window))
	}
	perFLOP := between(len(table), func(i int) (distance, seconds float64) {
		t := table[i]
		rate := t.Forward
		if backward {
			rate = t.Backward
		}
		return square(math.Log(length/float64(t.Length))) + square(2*math.Log(float64(a.Dim)/float64(t.Dim))), 1 / (rate * 1e12)
	})
	out.Seconds += max(flops*perFLOP, out.Bytes/(c.device.Bandwidth*1e9))
	return out
}

// narrowHead is the largest head dimension of the kernels whose warps do not share rows. Wider heads are far slower.
const narrowHead = 256

// alike returns the entries of table whose kernels are of the same kind as those for heads of dim elements; all entries
// if there are none.
func alike(table []Attention, dim int) []Attention {
	var out []Attention
	for _, t := range table {
		if (t.Dim > narrowHead) == (dim > narrowHead) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return table
	}
	return out
}

// name returns the key of a dtype in the tables of a Device: bf16 or fp32.
func name(d device.DType) string {
	if d == device.BF16 {
		return "bf16"
	}
	return "fp32"
}
