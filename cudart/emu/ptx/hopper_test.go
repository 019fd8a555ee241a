package ptx

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// hopperHeader begins a module of sm_90a.
const hopperHeader = ".version 8.0\n.target sm_90a\n.address_size 64\n"

// tensorProduct says how a test multiplies A, 64 rows of 64 columns, by B of n columns, on one warpgroup.
type tensorProduct struct {
	n                int
	width            int  // of the swizzle's pattern in bytes, 16: none
	acrossA, acrossB bool // the tensor lies in memory column by column
	registers        bool // A comes from registers
	negateA, negateB bool
	twice            bool // the product is added a second time
}

const (
	productK = 64
	mapsAt   = 1 << 40
)

// lines collects the text of a kernel.
type lines struct{ strings.Builder }

func (l *lines) add(format string, args ...any) { fmt.Fprintf(l, format+"\n", args...) }

// tile is how an operand of so many rows (of M or N) lies in shared memory at an offset, in panels as wide as the swizzle's pattern.
type tile struct {
	at, rows, width int
	across          bool
}

func (t tile) panels() int {
	if t.across {
		return t.rows * 2 / t.width
	}
	return productK * 2 / t.width
}

func (t tile) panelBytes() int {
	if t.across {
		return productK * t.width
	}
	return t.rows * t.width
}

// descriptor is that of columns k to k + 15.
func (t tile) descriptor(k int) uint64 {
	mode := map[int]uint64{16: 0, 128: 1, 64: 2, 32: 3}[t.width]
	at, leading, stride := t.at+k*t.width, t.panelBytes(), 8*t.width
	switch {
	case !t.across:
		at = t.at + 2*k/t.width*t.panelBytes() + 2*k%t.width
	case t.width == 16:
		leading, stride = 128, t.panelBytes()
	}
	return uint64(at>>4) | uint64(leading>>4)<<16 | uint64(stride>>4)<<32 | mode<<62
}

// tensor is the tensor map that fills the tile's panels.
func (t tile) tensor(address uint64) *TensorMap {
	m := &TensorMap{Address: address, Element: 2, Rank: 2, Size: [5]uint64{productK, uint64(t.rows)}, Box: [5]uint32{uint32(t.width / 2), uint32(t.rows)}, Swizzle: t.width}
	if t.across {
		m.Size, m.Box[1] = [5]uint64{uint64(t.rows), productK}, productK
	}
	m.Stride = [5]uint64{2, 2 * m.Size[0]}
	return m
}

// tiles are where the operands lie.
func (p tensorProduct) tiles() (a, b tile) {
	a = tile{0, 64, p.width, p.acrossA}
	return a, tile{64 * productK * 2, p.n, p.width, p.acrossB}
}

// kernel is the text of the kernel: parameters are two tensor maps, A and the sums.
func (p tensorProduct) kernel() string {
	a, b := p.tiles()
	var l lines
	l.add(hopperHeader+`.visible .entry k(.param .align 64 .b8 ma[128], .param .align 64 .b8 mb[128], .param .u64 a, .param .u64 out)
.maxntid 128, 1, 1
{
	.reg .pred %%p, %%done, %%yes;
	.reg .b32 %%t, %%bar, %%s, %%x<4>, %%a<4>, %%w;
	.reg .f32 %%d<%d>;
	.reg .b64 %%ma, %%mb, %%o, %%q, %%ra;
	.shared .align 1024 .b8 space[%d];
	mov.u32 %%t, %%tid.x; mov.u32 %%bar, space; add.u32 %%bar, %%bar, %d;
	mov.b64 %%ma, ma; cvta.param.u64 %%ma, %%ma;
	mov.b64 %%mb, mb; cvta.param.u64 %%mb, %%mb;
	setp.ne.u32 %%p, %%t, 0;
	@%%p bra READY;
	mbarrier.init.shared::cta.b64 [%%bar], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%bar], %d;`, p.n/2, b.at+p.n*productK*2+8, b.at+p.n*productK*2, (64+p.n)*productK*2)
	for _, o := range []struct {
		tile
		name string
	}{{a, "ma"}, {b, "mb"}} {
		for i := range o.panels() {
			l.add("\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [space+%d], [%%%s, {%d, 0}], [%%bar];", o.at+i*o.panelBytes(), o.name, i*o.width/2)
		}
	}
	l.add(`	READY: bar.sync 0;
	{ AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %%done, [%%bar], 0; @!%%done bra AGAIN; }`)
	if p.registers {
		l.add("\tld.param.u64 %%ra, [a]; shr.u32 %%x0, %%t, 5; and.b32 %%x1, %%t, 31; shr.u32 %%x2, %%x1, 2; and.b32 %%x3, %%x1, 3;")
		l.add("\tmad.lo.u32 %%x2, %%x0, 16, %%x2; mul.lo.u32 %%x2, %%x2, %d; mad.lo.u32 %%x2, %%x3, 4, %%x2; cvt.u64.u32 %%q, %%x2; add.u64 %%ra, %%ra, %%q;", 2*productK)
	}
	for range 1 + map[bool]int{true: 1}[p.twice] {
		for k := 0; k < productK; k += 16 {
			p.step(&l, a.descriptor(k), b.descriptor(k), k)
		}
	}
	l.add("\tld.param.u64 %%o, [out]; mul.wide.u32 %%q, %%t, %d; add.u64 %%o, %%o, %%q;", 2*p.n)
	for i := range p.n / 2 {
		l.add("\tst.global.f32 [%%o+%d], %%d%d;", 4*i, i)
	}
	l.add("\tret;\n}")
	return l.String()
}

// step multiplies 16 columns. The first product of all begins the sums.
func (p tensorProduct) step(l *lines, a, b uint64, k int) {
	sums := make([]string, p.n/2)
	for i := range sums {
		sums[i] = fmt.Sprintf("%%d%d", i)
	}
	one := map[bool]int{false: 1, true: -1}
	bit := map[bool]int{true: 1}
	operand, across := fmt.Sprint(a), fmt.Sprintf("%d, ", bit[p.acrossA])
	if p.registers {
		operand, across = "{%a0, %a1, %a2, %a3}", ""
		for i, at := range []int{0, 8 * 2 * productK, 16, 8*2*productK + 16} {
			l.add("\tld.global.b32 %%a%d, [%%ra+%d];", i, at+2*k)
		}
	}
	begins := k == 0 && !strings.Contains(l.String(), "mma_async")
	l.add("\tsetp.eq.u32 %%yes, %d, 1;", bit[!begins])
	l.add("\twgmma.fence.sync.aligned;\n\twgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s}, %s, %d, %%yes, %d, %d, %s%d;\n\twgmma.commit_group.sync.aligned;",
		p.n, strings.Join(sums, ","), operand, b, one[p.negateA], one[p.negateB], across, bit[p.acrossB])
	l.add("\twgmma.wait_group.sync.aligned 0;")
}

// randomBrains are bf16 of few bits, whose products and sums are exact in fp32.
func randomBrains(rng *rand.Rand, n int) ([]float32, []byte) {
	values, data := make([]float32, n), make([]byte, 2*n)
	for i := range values {
		values[i] = float32(rng.IntN(31) - 15)
		binary.LittleEndian.PutUint16(data[2*i:], uint16(bits32(values[i])>>16))
	}
	return values, data
}

// TestTensorProducts multiplies by wgmma what bulk copies have brought, in every layout, and compares with plain sums.
func TestTensorProducts(t *testing.T) {
	var all []tensorProduct
	for _, width := range []int{16, 32, 64, 128} {
		for _, n := range []int{8, 64, 136, 256} {
			for layout := range 4 {
				p := tensorProduct{n: n, width: width, acrossA: layout&1 != 0, acrossB: layout&2 != 0}
				if p.acrossB && 2*n%width != 0 {
					continue
				}
				all = append(all, p)
			}
		}
	}
	all = append(all, tensorProduct{n: 32, width: 128, negateA: true, twice: true}, tensorProduct{n: 32, width: 128, negateB: true}, tensorProduct{n: 32, width: 128, negateA: true, negateB: true},
		tensorProduct{n: 64, width: 128, registers: true, acrossB: true, twice: true}, tensorProduct{n: 96, width: 64, registers: true, negateA: true})
	for i, p := range all {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		a, dataA := randomBrains(rng, 64*productK)
		b, dataB := randomBrains(rng, p.n*productK)
		var h heap
		bufA, bufB, out := h.add("A", dataA), h.add("B", dataB), h.add("out", make([]byte, 64*p.n*4))
		ta, tb := p.tiles()
		ma, mb := ta.tensor(bufA.Base).Encode(), tb.tensor(bufB.Base).Encode()
		l := Launch{Kernel: parse(t, p.kernel()).Kernel("k"), Grid: dim(1), Block: dim(128), Memory: h, Seed: uint64(i), CheckGlobal: true,
			Params: append(append(append([]byte{}, ma[:]...), mb[:]...), params(bufA.Base, out.Base)...)}
		touched, err := l.Run()
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		at := func(x []float32, row, k, rows int, across bool) float32 {
			if across {
				return x[k*rows+row]
			}
			return x[row*productK+k]
		}
		for row := range 64 {
			for col := range p.n {
				want := float32(0)
				for k := range productK {
					want += at(a, row, k, 64, p.acrossA) * at(b, col, k, p.n, p.acrossB)
				}
				if p.negateA != p.negateB {
					want = -want
				}
				if p.twice {
					want *= 2
				}
				thread, reg := row/16*32+row%8*4+col%8/2, col/8*4+row%16/8*2+col%2
				if got := f32(binary.LittleEndian.Uint32(out.Data[4*(thread*p.n/2+reg):])); got != want {
					t.Fatalf("%+v: row %d, column %d is %v, want %v", p, row, col, got, want)
				}
			}
		}
		for _, x := range touched {
			if (x.Buffer == bufA || x.Buffer == bufB) && (x.ReadFrom != 0 || x.ReadTo != int64(len(x.Buffer.Data))) {
				t.Errorf("%+v: read %d to %d of %s", p, x.ReadFrom, x.ReadTo, x.Buffer.Name)
			}
		}
	}
}
