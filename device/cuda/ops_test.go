package cuda

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device"
	"mt/device/optest"
)

// part runs those cases of the table that want picks.
type part struct {
	*testing.T
	want func(name string) bool
}

func (p part) Run(name string, f func(part)) bool {
	if !p.want(name) {
		return true
	}
	return p.T.Run(name, func(t *testing.T) { f(part{t, p.want}) })
}

// parts is into how many parts the table falls, which run beside each other,
// each with a device of its own.
const parts = 4

// TestOps runs the table of operations: all of it with matrix products by
// cuBLASLt, and the products again by our own kernels.
func TestOps(t *testing.T) {
	some := uint32(parts)
	if raceEnabled {
		some = 1 // slow, and the values are those of other runs
	}
	for i := range some {
		mine := func(name string) bool {
			h := fnv.New32a()
			h.Write([]byte(name))
			return h.Sum32()%parts == i
		}
		t.Run(fmt.Sprintf("cuBLASLt/%d", i), func(t *testing.T) {
			t.Parallel()
			d, _ := newDevice(t, emu.Options{Mode: emu.Random, Seed: uint64(i), Threads: 1}, Options{})
			optest.Run(part{t, mine}, d)
		})
		t.Run(fmt.Sprintf("own/%d", i), func(t *testing.T) {
			t.Parallel()
			d, _ := newDevice(t, emu.Options{Mode: emu.Lazy, Threads: 1}, Options{OwnMatMul: true})
			products := func(name string) bool { return strings.HasPrefix(name, "MatMul/") && mine(name) }
			optest.Run(part{t, products}, d)
			if len(d.Algorithms()) > 0 {
				t.Error("cuBLASLt was used")
			}
		})
	}
}

// Products go to cuBLASLt, by one algorithm a shape, and to our own kernels
// where it refuses.
func TestAlgorithms(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<20)
	s.Zero(x)
	f := func(off int64) device.Tensor { return x.Tensor(device.BF16, off, 64*64) }
	product := device.MatMul{M: 64, N: 64, K: 64, A: f(0), B: f(1 << 14), D: f(1 << 15)}
	moved := product
	moved.A = f(1 << 17)
	accumulating := product
	accumulating.C = product.D
	unaligned := product
	unaligned.B = f(1<<14 + 2)
	for _, m := range []device.MatMul{product, moved, product, accumulating, unaligned} {
		d.Ops().MatMul(s, m)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	got := d.Algorithms()
	var shapes []string
	for _, a := range got {
		shapes = append(shapes, a.Shape)
	}
	want := []string{"64x64x64 NN bf16->bf16 +C align [256 256 256 256 0]", "64x64x64 NN bf16->bf16 align [256 2 0 256 0]",
		"64x64x64 NN bf16->bf16 align [256 256 0 256 0]"}
	if fmt.Sprint(shapes) != fmt.Sprint(want) {
		t.Errorf("shapes\n%q, want\n%q", shapes, want)
	}
}

// The list of shapes has an end, and what is forgotten is given back.
func TestProductsAreForgotten(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	x := alloc(t, d, 4*(mostProducts+10)).Tensor(device.F32, 0, mostProducts+10)
	for n := 1; n < mostProducts+5; n++ {
		key := productKey{m: n, n: 1, k: 1, in: device.F32, out: device.F32}
		d.blas.products[key] = &product{refused: true}
	}
	d.Ops().MatMul(s, device.MatMul{M: 1, N: 1, K: 1, A: x.Slice(0, 1), B: x.Slice(1, 1), D: x.Slice(2, 1)})
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if n := len(d.Algorithms()); n != 1 {
		t.Errorf("%d shapes are remembered", n)
	}
}

func TestBadArgumentsAreErrors(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	m := alloc(t, d, 4096)
	f, h, ints := m.Tensor(device.F32, 0, 64), m.Tensor(device.BF16, 512, 64), m.Tensor(device.I32, 1024, 8)
	o := d.Ops()
	cases := []struct {
		want string
		call func(s device.Stream)
	}{
		{"Y is bf16, want fp32", func(s device.Stream) {
			o.RMSNorm(s, device.RMSNorm{Y: h, X: f, W: f, Rows: 1, Groups: 1, Dim: 4, XStride: 4, YStride: 4})
		}},
		{"DX may not be DY", func(s device.Stream) {
			o.RMSNormBackward(s, device.RMSNormBackward{DX: f, DY: f, X: f, W: f, DW: f, RStd: f, Rows: 1, Groups: 1, Dim: 4, Add: true})
		}},
		{"Rotary is 3", func(s device.Stream) { o.RoPE(s, device.RoPE{X: f, T: 1, Heads: 1, Dim: 4, Rotary: 3, Stride: 4}) }},
		{"Pos holds 0 elements, want 1", func(s device.Stream) {
			o.RoPE(s, device.RoPE{X: f, Cos: f, Sin: f, T: 1, Heads: 1, Dim: 4, Rotary: 4, Stride: 4})
		}},
		{"3 heads do not share 2 key heads evenly", func(s device.Stream) {
			o.Attention(s, device.Attention{AttentionShape: device.AttentionShape{Heads: 3, KVHeads: 2}})
		}},
		{"DK holds 0 elements, want 4", func(s device.Stream) {
			shape := device.AttentionShape{CuQ: ints, CuK: ints, Seqs: 1, TQ: 1, TK: 1, MaxQ: 1, MaxK: 1, Heads: 1, KVHeads: 1, Dim: 4}
			o.AttentionBackward(s, device.AttentionBackward{AttentionShape: shape, Q: f, K: f, V: f, O: f, DO: f, DQ: f})
		}},
		{"gu is int32, want fp32 or bf16", func(s device.Stream) { o.SwiGLU(s, f, ints, 1, 2) }},
		{"dgu holds 8 elements, want 64", func(s device.Stream) { o.SwiGLUBackward(s, f.Slice(0, 8), f, f, f, 4, 8) }},
		{"index is fp32, want int32", func(s device.Stream) { o.GatherRows(s, f, f, f, 1, 4) }},
		{"start is fp32, want int32", func(s device.Stream) { o.ScatterAddRows(s, f, f, f, ints, 1, 2, 4) }},
		{"Losses is bf16, want fp32", func(s device.Stream) {
			o.CrossEntropy(s, device.CrossEntropy{Logits: f, Targets: ints, Losses: h, T: 2, V: 4})
		}},
		{"LSE holds 0 elements, want 2", func(s device.Stream) {
			o.CrossEntropyShard(s, device.CrossEntropyShard{Logits: f, Targets: ints, Losses: f, T: 2, V: 4})
		}},
		{"C is fp32, want bf16", func(s device.Stream) { o.MatMul(s, device.MatMul{M: 1, N: 1, K: 1, A: h, B: h, D: h, C: f}) }},
		{"src is int32, want fp32 or bf16", func(s device.Stream) { o.Convert(s, f, ints, 1) }},
		{"an extent is negative", func(s device.Stream) { o.AddBiasGrad(s, f, f, -1, 2) }},
	}
	for i, c := range cases {
		s := newStream(t, d, fmt.Sprint(i))
		c.call(s)
		if err := s.Sync(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
