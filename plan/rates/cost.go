package rates

import (
	"math"

	"mt/device"
	"mt/device/op"
)

// Cost is what something takes when nothing else runs.
type Cost struct {
	Seconds float64
	Bytes   float64 // of device memory that are read and written
	Cores   float64 // of the CPU device: how many cores it keeps busy; 0: all
}

// Costs tells what operations take on a device. It remembers shapes, so it is not for
// several goroutines.
type Costs struct {
	device   *Device
	products map[shape]float64 // seconds per FLOP
}

// shape is what the rate of a matrix product depends on.
type shape struct {
	m, n, k        int
	transA, transB bool
	dtype          device.DType
}

// NewCosts makes the costs of m's device, which must have passed Check.
func NewCosts(m *Machine) *Costs {
	return &Costs{device: &m.Device, products: map[shape]float64{}}
}

// Op is what o takes.
func (c *Costs) Op(o device.Op) Cost {
	switch o := o.(type) {
	case *op.MatMul:
		return c.product(o)
	case *op.Attention:
		return c.attention(&o.AttentionShape, o.Q.DType, o.Bytes(), false)
	case *op.AttentionBackward:
		return c.attention(&o.AttentionShape, o.Q.DType, o.Bytes(), true)
	case op.Mover:
		return c.Moved(o.Name(), o.Bytes())
	}
	return Cost{Seconds: c.device.Launch / 1e6}
}

// Moved is what an operation takes that reads and writes so many bytes of device memory and
// does little else.
func (c *Costs) Moved(name string, bytes int64) Cost {
	if r, ok := c.device.Ops[name]; ok {
		return r.Cost(float64(bytes))
	}
	return Cost{Seconds: c.device.Launch/1e6 + float64(bytes)/(c.device.Bandwidth*1e9), Bytes: float64(bytes)}
}

// Cost is what o takes for so many bytes.
func (o Op) Cost(bytes float64) Cost {
	return Cost{Seconds: o.Fixed/1e6 + bytes/(o.Rate*1e9), Bytes: bytes, Cores: o.Cores}
}

// Line is what two sizes make of an operation, the smaller one first: its rate is that of what the larger one moves more,
// and what is left of the smaller one is fixed. Where other programs are at work the larger one may
// be hardly slower, or not at all: so the rate is at most twice that of the larger one by itself.
func Line(seconds, bytes []float64) Op {
	rate, alone := (bytes[1]-bytes[0])/(seconds[1]-seconds[0]), bytes[1]/seconds[1]
	if !(rate > 0 && rate <= 2*alone) {
		rate = alone
	}
	return Op{Fixed: Round(max(0, seconds[0]-bytes[0]/rate) * 1e6), Rate: Round(rate / 1e9)}
}

func (c *Costs) product(p *op.MatMul) Cost {
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K)
	out := Cost{Bytes: float64(p.Bytes())}
	if flops > 0 {
		out.Seconds = flops * c.perFLOP(shape{p.M, p.N, p.K, p.TransA, p.TransB, p.A.DType})
	}
	out.Seconds = c.device.Launch/1e6 + max(out.Seconds, out.Bytes/(c.device.Bandwidth*1e9))
	return out
}

// perFLOP is how many seconds a product of a shape takes for one FLOP.
func (c *Costs) perFLOP(s shape) float64 {
	if t, ok := c.products[s]; ok {
		return t
	}
	table := c.device.Products[name(s.dtype)]
	if len(table) == 0 { // small products, such as a router's, may be of the other dtype
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

// Squared distances between the logarithms of shapes.
const (
	largeDistance  = 16 // of a rate that is given without a shape, from any
	otherTranspose = 9  // of a rate for other transposes
)

// filled is the part of a GPU's tiles of 128 × 128 that a product fills; a rate without a
// shape is that of full tiles.
func filled(s shape) float64 {
	const tile = 128
	part := func(n int) float64 { return float64(n) / float64((n+tile-1)/tile*tile) }
	return part(s.m) * part(s.n)
}

func square(x float64) float64 { return x * x }

// between is a value between those of n entries: the mean of their logarithms, weighted by
// the inverse of the squared distance squared.
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

func (c *Costs) attention(a *op.AttentionShape, dtype device.DType, bytes int64, backward bool) Cost {
	products := 2.0
	if backward {
		products = 5
	}
	flops := products * 2 * a.Pairs() * float64(a.Heads) * float64(a.Dim)
	out := Cost{Bytes: float64(bytes), Seconds: c.device.Launch / 1e6}
	if flops <= 0 {
		return out
	}
	table := c.device.Attention[name(dtype)]
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

// name is what a dtype is called in Machine.
func name(d device.DType) string {
	if d == device.BF16 {
		return "bf16"
	}
	return "fp32"
}
