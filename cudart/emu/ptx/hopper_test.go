package ptx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// hopperHeader is the header of a module for sm_90a.
const hopperHeader = ".version 8.0\n.target sm_90a\n.address_size 64\n"

// tensorProduct describes one wgmma product for a test: A is 64 × 64, and B has n columns. One
// warpgroup computes it.
type tensorProduct struct {
	n                int
	width            int  // row size of the swizzle pattern in bytes; 16: no swizzle
	acrossA, acrossB bool // the tensor is stored column by column
	registers        bool // A is in registers
	negateA, negateB bool
	twice            bool // the product is accumulated twice
}

const (
	productK = 64
	mapsAt   = 1 << 40
)

// lines collects the lines of a kernel's PTX.
type lines struct{ strings.Builder }

func (l *lines) add(format string, args ...any) { fmt.Fprintf(l, format+"\n", args...) }

// tile describes an operand of wgmma at offset at in shared memory. It has rows rows (of M or N),
// in panels as wide as the swizzle pattern.
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

// descriptor returns the wgmma descriptor of the tile's columns k to k + 15.
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

// tensor returns the tensor map with which bulk copies fill the tile's panels from the tensor at
// address.
func (t tile) tensor(address uint64) *TensorMap {
	m := &TensorMap{Address: address, Element: 2, Rank: 2, Size: [5]uint64{productK, uint64(t.rows)}, Box: [5]uint32{uint32(t.width / 2), uint32(t.rows)}, Swizzle: t.width}
	if t.across {
		m.Size, m.Box[1] = [5]uint64{uint64(t.rows), productK}, productK
	}
	m.Stride = [5]uint64{2, 2 * m.Size[0]}
	return m
}

// tiles returns the tiles of A and of B in shared memory.
func (p tensorProduct) tiles() (a, b tile) {
	a = tile{0, 64, p.width, p.acrossA}
	return a, tile{64 * productK * 2, p.n, p.width, p.acrossB}
}

// kernel returns the PTX of a kernel that computes p. Its parameters are the tensor maps of A and
// B, and the addresses of A and of the result.
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

// step appends the wgmma that multiplies 16 columns, from k on. The first one overwrites the sums,
// later ones add to them.
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

// randomBrains returns n random bf16 values, as floats and as bytes. They are small integers, whose
// products and sums are exact in fp32.
func randomBrains(rng *rand.Rand, n int) ([]float32, []byte) {
	values, data := make([]float32, n), make([]byte, 2*n)
	for i := range values {
		values[i] = float32(rng.IntN(31) - 15)
		binary.LittleEndian.PutUint16(data[2*i:], uint16(bits32(values[i])>>16))
	}
	return values, data
}

// TestTensorProducts: wgmma on operands that bulk copies have brought gives exactly the sums
// computed in Go, for every layout, swizzle and size.
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

// hopperSmall returns a kernel for two warpgroups with 16 KiB of shared memory: tiles A and B of 64
// rows of 64 bf16 with a swizzle of 128 bytes. Behind them are three mbarriers: ONE and ALSO for
// one arrival, TWO for two. body may use these words:
//
//	FILL          all threads store zeros in both tiles
//	GROUP         threads of the second warpgroup go to E, the end
//	LOAD(x,b)     copies the tensor to offset x, with mbarrier b
//	WAIT(b,n)     waits for parity n of mbarrier b
//	MUL, MULA     multiplies 16 columns, N = 16: A from shared memory, or from registers %a0 to %a3; the sums are %d0 to %d7
//	OPEN, CLOSE   wgmma.fence; wgmma.commit_group and wgmma.wait_group 0
//	ONLY          before a statement: only thread 0 executes it
func hopperSmall(body string) string {
	loop := 0
	wait := func(b, parity string) string {
		loop++
		return fmt.Sprintf("W%d: mbarrier.try_wait.parity.shared::cta.b64 %%q, [%s], %s; @!%%q bra W%d;", loop, b, parity, loop)
	}
	for strings.Contains(body, "WAIT(") {
		before, rest, _ := strings.Cut(body, "WAIT(")
		args, after, _ := strings.Cut(rest, ")")
		b, parity, _ := strings.Cut(args, ",")
		body = before + wait(b, parity) + after
	}
	for strings.Contains(body, "LOAD(") {
		before, rest, _ := strings.Cut(body, "LOAD(")
		args, after, _ := strings.Cut(rest, ")")
		x, b, _ := strings.Cut(args, ",")
		body = before + fmt.Sprintf("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [space+%s], [%%map, {0, 0}], [%s];", x, b) + after
	}
	const sums = "{%d0,%d1,%d2,%d3,%d4,%d5,%d6,%d7}"
	fill := ""
	for i := range 4 {
		fill += fmt.Sprintf("st.shared.v4.b32 [%%s+%d], {%%z,%%z,%%z,%%z};", 4096*i)
	}
	body = strings.NewReplacer("FILL;", fill, "GROUP;", "@!%first bra E;", "ONLY", "@%zero", "ALSO", "space+16392", "ONE", "space+16384", "TWO", "space+16400",
		"OPEN;", "wgmma.fence.sync.aligned;", "CLOSE;", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
		"MULA;", "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "+sums+", {%a0,%a1,%a2,%a3}, %db, %q, 1, 1, 0;",
		"MUL;", "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "+sums+", %da, %db, %q, 1, 1, 0, 0;").Replace(body)
	a := tile{0, 64, 128, false}
	b := tile{8192, 64, 128, false}
	return hopperHeader + fmt.Sprintf(`.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p)
.maxntid 384, 1, 1
{
	.reg .pred %%p, %%q, %%zero, %%first;
	.reg .b32 %%t, %%x, %%y, %%z, %%s, %%a<4>;
	.reg .f32 %%d<16>, %%f;
	.reg .b64 %%map, %%p0, %%da, %%db, %%state, %%r;
	.shared .align 1024 .b8 space[16896];
	mov.u32 %%t, %%tid.x;
	setp.eq.u32 %%zero, %%t, 0;
	setp.lt.u32 %%first, %%t, 128;
	setp.lt.u32 %%q, %%t, 0;
	mov.u32 %%z, 0; mov.u32 %%s, space; mad.lo.u32 %%s, %%t, 16, %%s;
	mov.b64 %%map, m; cvta.param.u64 %%map, %%map;
	ld.param.u64 %%p0, [p];
	mov.b64 %%da, %d; mov.b64 %%db, %d;
	@%%zero mbarrier.init.shared::cta.b64 [space+16384], 1;
	@%%zero mbarrier.init.shared::cta.b64 [space+16392], 1;
	@%%zero mbarrier.init.shared::cta.b64 [space+16400], 2;
	fence.mbarrier_init.release.cluster;
	bar.sync 0;
`, a.descriptor(0), b.descriptor(0)) + body + "\nE: ret;\n}"
}

// runHopperSmall runs hopperSmall(body) on threads threads with a tensor of 64 rows of 64 ones.
func runHopperSmall(t *testing.T, body string, threads uint32, seed uint64) error {
	t.Helper()
	var h heap
	data := make([]byte, 8192)
	for i := range 4096 {
		data[2*i], data[2*i+1] = 0x80, 0x3f
	}
	buf := h.add("ones", data)
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	k := parse(t, hopperSmall(body)).Kernel("k")
	l := Launch{Kernel: k, Grid: dim(1), Block: dim(threads), Memory: h, Seed: seed, CheckGlobal: true, Params: append(m[:], params(buf.Base)...)}
	_, err := l.Run()
	return err
}

// ready is the beginning of a body: it fills both tiles and makes them visible to asynchronous
// work.
const ready = "FILL; fence.proxy.async; bar.sync 0; "

// hopperMistakes are bodies of hopperSmall with one mistake each. The emulator must report an error
// at the line marked //!, with the wanted words, in any order of warps and copies.
var hopperMistakes = []struct{ name, body, want string }{
	// Missing or wrong fences between stores and asynchronous work.
	{"stored, no fence.proxy.async", "FILL; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;", "is read asynchronously without a fence.proxy.async after warp"},
	{"fence.proxy.async before the store", "fence.proxy.async; FILL; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;", "is read asynchronously without a fence.proxy.async after warp"},
	{"fence.proxy.async of one thread of each warp", "FILL; and.b32 %x, %t, 31; setp.eq.u32 %p, %x, 0; @%p fence.proxy.async; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;", "without a fence.proxy.async"},
	{"fence.proxy.async of one thread after cp.async", "FILL; fence.proxy.async; and.b32 %x, %t, 127; shl.b32 %x, %x, 4; cvt.u64.u32 %r, %x; add.u64 %r, %p0, %r; cp.async.ca.shared.global [%s], [%r], 16; fence.proxy.async; cp.async.wait_all; and.b32 %x, %t, 31; setp.eq.u32 %p, %x, 0; @%p fence.proxy.async; bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;",
		"without a fence.proxy.async"},
	{"fence.proxy.async behind the barrier", "FILL; bar.sync 0; fence.proxy.async; GROUP; OPEN;\n MUL; //!\n CLOSE;", "is read asynchronously without a"},
	{"fenced, no barrier", "FILL; fence.proxy.async; GROUP; OPEN;\n MUL; //!\n CLOSE;", "shared memory at offset"},
	{"nothing stored", "GROUP; OPEN;\n MUL; //!\n CLOSE;", "nothing wrote it"},
	{"copied out, no fence", "FILL; bar.sync 0;\n ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 8192; //!\n cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
		"is read asynchronously without a fence.proxy.async"},
	{"copied over stores, no fence", "FILL; bar.sync 0; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(0,ONE) //!\n WAIT(ONE,0)",
		"is written asynchronously without a fence.proxy.async"},
	{"copied over what a warp reads", ready + "setp.lt.u32 %p, %t, 32; @!%p bra M; V: ld.volatile.global.u32 %x, [%p0]; setp.ne.u32 %p, %x, 5; @%p bra V; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(0,ONE) //!\n bra E; M: setp.lt.u32 %p, %t, 64; @!%p bra E; ld.shared.b32 %x, [%s]; setp.eq.u32 %p, %t, 32; @%p st.volatile.global.u32 [%p0], 5;",
		"is written without a barrier after warp 1 read it"},

	// Accesses to the destination of a bulk copy that is not known to be complete.
	{"copied, not waited for", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE)\n ONLY ld.shared.b32 %x, [space]; //!\n WAIT(ONE,0)",
		"is read while a bulk copy writes it, and phase 0 of the mbarrier at offset 16384 was not waited for"},
	{"copied, another barrier waited for", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ALSO], 8192; ONLY LOAD(8192,ALSO) WAIT(ALSO,0)\n ONLY ld.shared.b32 %x, [space+16]; //!\n WAIT(ONE,0)",
		"offset 16 is read while a bulk copy writes it, and phase 0 of the mbarrier at offset 16384"},
	{"copied, multiplied at once", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16384; ONLY LOAD(0,ONE) ONLY LOAD(8192,ONE) bar.sync 0; GROUP; OPEN;\n MUL; //!\n CLOSE;",
		"is read while a bulk copy writes it"},
	{"copied and overwritten", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) bar.sync 0;\n ONLY st.shared.b32 [space], %z; //!\n WAIT(ONE,0)",
		"is written while a bulk copy writes it"},
	{"copied twice", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16384; ONLY LOAD(0,ONE)\n ONLY LOAD(0,ONE) //!\n WAIT(ONE,0)", "is written while a bulk copy writes it"},
	{"stored after an arrival", "ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; ONLY st.shared.b32 [space], %z; WAIT(ONE,0) @%zero bra E;\n ld.shared.b32 %x, [space]; //!", "shared memory at offset 0 is read"},
	{"never waited for", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(0,ONE) //!", "the block ends and nothing waited for this copy"},

	// Accesses to registers that a running wgmma uses.
	{"sum read too early", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned;\n mov.f32 %f, %d0; //!\n wgmma.wait_group.sync.aligned 0;",
		"register %d0 is touched while wgmma.mma_async at line"},
	{"sum written too early", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned;\n mov.f32 %d7, 0f00000000; //!\n wgmma.wait_group.sync.aligned 0;", "register %d7 is touched while"},
	{"not committed", ready + "GROUP; OPEN; MUL; wgmma.wait_group.sync.aligned 0;\n mov.f32 %f, %d0; //!\n CLOSE;", "register %d0 is touched while"},
	{"an older group waited for", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;\n mov.f32 %f, %d0; //!\n CLOSE;", "register %d0 is touched while"},
	{"A written too early", ready + "GROUP; mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; OPEN; MULA; wgmma.commit_group.sync.aligned;\n mov.b32 %a3, 0; //!\n wgmma.wait_group.sync.aligned 0;",
		"register %a3 is touched while wgmma.mma_async at line"},
	{"no wgmma.fence", ready + "GROUP;\n MUL; //!\n CLOSE;", "wgmma.fence is missing before the first"},
	{"sum written after wgmma.fence", ready + "GROUP; OPEN; mov.f32 %d3, 0f00000000;\n MUL; //!\n CLOSE;", "register %d3 was touched after the last wgmma.fence"},
	{"sum read between products", ready + "GROUP; OPEN; MUL; CLOSE; mov.f32 %f, %d3;\n MUL; //!\n CLOSE;", "register %d3 was touched after the last wgmma.fence"},
	{"A written after wgmma.fence", ready + "GROUP; OPEN; mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0;\n MULA; //!\n CLOSE;", "register %a0 was touched after the last wgmma.fence"},
	{"sums of another shape", ready + "GROUP; OPEN; MUL;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0,%d1,%d2,%d3}, %da, %db, %q, 1, 1, 0, 0; //!\n CLOSE;", "register %d0 is a sum of wgmma.mma_async at line"},
	{"sums as A", ready + "GROUP; OPEN; MUL;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d8,%d9,%d10,%d11}, {%d0,%d1,%d2,%d3}, %db, %q, 1, 1, 0; //!\n CLOSE;", "register %d0 is A, and wgmma.mma_async at line"},
	{"A as sums", ready + "GROUP; OPEN; MULA;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%a0,%a1,%a2,%a3}, %da, %db, %q, 1, 1, 0, 0; //!\n CLOSE;", "register %a0 is a sum, and wgmma.mma_async at line"},
	{"ended before its products", ready + "GROUP; OPEN;\n MUL; //!\n wgmma.commit_group.sync.aligned;", "ends while this product is under way"},

	// Writes to shared memory that a running wgmma reads.
	{"operand overwritten", ready + "@!%first bra M; OPEN; MUL; wgmma.commit_group.sync.aligned; bar.sync 1, 256; wgmma.wait_group.sync.aligned 0; bra E; M: bar.sync 1, 256;\n st.shared.b32 [%s+-2048], %z; //!",
		"reads it: wgmma.wait_group is missing"},
	{"operand overwritten by its own warpgroup", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; bar.sync 1, 128;\n st.shared.b32 [%s], %z; //!\n wgmma.wait_group.sync.aligned 0;", "reads it: wgmma.wait_group is missing"},
	{"operand overwritten by a copy", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192;\n ONLY LOAD(8192,ONE) //!\n wgmma.wait_group.sync.aligned 0;",
		"reads it: wgmma.wait_group is missing"},
	{"operand overwritten without a barrier", ready + "@!%first bra M; OPEN; MUL; CLOSE; bar.sync 1, 128; ONLY st.volatile.global.u32 [%p0], 5; bra E; M: setp.lt.u32 %p, %t, 160; @!%p bra E; V: ld.volatile.global.u32 %x, [%p0]; setp.ne.u32 %p, %x, 5; @%p bra V;\n st.shared.b32 [%s+-2048], %z; //!",
		"shared memory at offset 0 is written without a barrier after asynchronous work of warp 0 read it"},
	{"what is copied out overwritten", ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 8192;\n cp.async.bulk.commit_group; bar.sync 0;\n st.shared.b32 [%s], %z; //!\n cp.async.bulk.wait_group 0;",
		"cp.async.bulk.wait_group is missing"},
	{"an older copy out waited for", ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0+64], [space+64], 64; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group.read 1; bar.sync 0;\n ONLY st.shared.b32 [space+64], %z; //!\n ONLY cp.async.bulk.wait_group 0;",
		"cp.async.bulk.wait_group is missing"},
	{"copying out when the block ends", ready + "\n ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 8192; //!\n cp.async.bulk.commit_group;", "the block ends while this copy reads its shared memory"},

	// Wrong uses of mbarriers.
	{"an arrival too many", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16;\n ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; //!", "1 arrivals at the mbarrier at offset 16384, whose phase 0 waits for 0 more of 1, and for 16 bytes"},
	{"an arrival for too many", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [TWO], 3; //!", "3 arrivals at the mbarrier at offset 16400, whose phase 0 waits for 2 more of 2"},
	{"more bytes expected", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8208; ONLY LOAD(0,ONE)\n WAIT(ONE,0) //!", "waits for the mbarrier at offset 16384 (phase 0 lacks 0 of 1 arrivals and 16 bytes)"},
	{"fewer bytes expected", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8176;\n ONLY LOAD(0,ONE) //!\n WAIT(ONE,0)", "16 bytes more than expected have come to the mbarrier at offset 16384"},
	{"no bytes expected", "ONLY LOAD(0,ONE)\n ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; //!\n WAIT(ONE,0)", "expected"},
	{"too few arrivals", "ONLY mbarrier.arrive.shared::cta.b64 _, [TWO];\n WAIT(TWO,0) //!", "waits for the mbarrier at offset 16400 (phase 0 lacks 1 of 2 arrivals and 0 bytes); warp"},
	{"a phase that is over twice", "ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; bar.sync 0;\n WAIT(ONE,0) //!", "comes too late: that phase and the next one are over"},
	{"no such parity", "\n WAIT(ONE,2) //!", "parity 2"},
	{"made twice", "\n ONLY mbarrier.init.shared::cta.b64 [ONE], 1; //!", "is made again, and is still there since line"},
	{"made for nobody", "\n ONLY mbarrier.init.shared::cta.b64 [space+16408], 0; //!", "an mbarrier for 0 arrivals"},
	{"ended while a copy comes", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE)\n ONLY mbarrier.inval.shared::cta.b64 [ONE]; //!", "to the mbarrier at offset 16384 is under way"},
	{"not made", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [space+16408]; //!", "there is no mbarrier at offset 16408"},
	{"made, no barrier", "setp.ge.u32 %p, %t, 32; @%p bra M; ONLY mbarrier.init.shared::cta.b64 [space+16408], 1; ONLY st.volatile.global.u32 [%p0], 5; bra E; M: setp.eq.u32 %p, %t, 32; @!%p bra E; V: ld.volatile.global.u32 %x, [%p0]; setp.ne.u32 %p, %x, 5; @%p bra V;\n mbarrier.arrive.shared::cta.b64 _, [space+16408]; //!",
		"the mbarrier at offset 16408 is used without a barrier after warp 0 made it"},
	{"made, not shown to copies", "ONLY mbarrier.init.shared::cta.b64 [space+16408], 1; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [space+16408], 8192;\n ONLY LOAD(0,space+16408) //!",
		"no fence.mbarrier_init or fence.proxy.async after warp 0 made it"},
	{"read as memory", "\n ONLY ld.shared.b64 %r, [ONE]; //!", "which is an mbarrier"},
	{"read as a part of more", "ONLY st.shared.v2.b32 [space+16416], {%z,%z}; ONLY mbarrier.init.shared::cta.b64 [space+16424], 1;\n ONLY ld.shared.v4.b32 {%a0,%a1,%a2,%a3}, [space+16416]; //!", "which is an mbarrier"},
	{"written as memory", "\n ONLY st.shared.b64 [ONE], %r; //!", "which is an mbarrier: mbarrier.inval is missing"},
	{"in part outside", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [space+16896]; //!", "an mbarrier at offset 16896 of the block's 16896 bytes"},
	{"misaligned", "\n ONLY mbarrier.arrive.shared::cta.b64 _, [space+16388]; //!", "offset 16388, which is not a multiple of 8"},
	{"too many bytes", "ONLY mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [ONE], 1048000;\n ONLY mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [ONE], 1000; //!", "expects 1049000 bytes"},

	// Wrong wgmma descriptors and tensor maps.
	{"operand outside of shared memory", ready + "GROUP; add.u64 %db, %db, 512; OPEN;\n MUL; //!\n CLOSE;", "B: descriptor 0x4000004002000400 reaches offset"},
	{"operand beyond 256 KiB", ready + "GROUP; add.u64 %da, %da, 16384; OPEN;\n MUL; //!\n CLOSE;", "A: descriptor 0x4000004002004000 has bits that mean nothing"},
	{"operand in a row of the pattern", ready + "GROUP; add.u64 %da, %da, 8; OPEN;\n MUL; //!\n CLOSE;", "begins at offset 128, which is in row 1 of the swizzle's pattern of 1024 bytes"},
	{"stride beside the pattern", ready + "GROUP; mov.b64 %r, 0x800000000; sub.u64 %da, %da, %r; OPEN;\n MUL; //!\n CLOSE;", "A: the stride byte offset of 896 is no multiple of the swizzle's pattern"},
	{"descriptors that differ in a warp", ready + "GROUP; and.b32 %x, %t, 1; cvt.u64.u32 %r, %x; add.u64 %da, %da, %r; OPEN;\n MUL; //!\n CLOSE;", "in thread 0 of the warp"},
	{"descriptors that differ between warps", ready + "GROUP; shr.u32 %x, %t, 5; shl.b32 %x, %x, 1; cvt.u64.u32 %r, %x; add.u64 %da, %da, %r; OPEN;\n MUL; //!\n CLOSE;", "of the same warpgroup has"},
	{"no tensor map", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; mov.u64 %map, %p0;\n ONLY LOAD(0,ONE) //!", "there is no tensor map at this address"},
	{"tensor map of another rank", "\n ONLY cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%map, {0, 0, 0}], [ONE]; //!", "a tensor map of 2 dimensions in a copy of 3"},
	{"tensor to a misaligned place", "\n ONLY LOAD(64,ONE) //!", "offset 64 of shared memory, which is not a multiple of 128"},
	{"tensor beyond shared memory", "\n ONLY LOAD(8832,ONE) //!", "8192 bytes at offset 8832 of the block's 16896 bytes"},
	{"copy beyond a buffer", "\n ONLY cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%p0+16], 8192, [ONE]; //!", "ones, which has 8192"},
	{"copy of 8 bytes", "\n ONLY cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%p0], 8, [ONE]; //!", "all must be multiples of 16"},

	// wgmma that not all threads of a warpgroup execute alike.
	{"product without a thread", ready + "GROUP; setp.ne.u32 %p, %t, 70; OPEN;\n @%p MUL; //!\n CLOSE;", "the thread does not take part in wgmma"},
	{"product without a warp", ready + "GROUP; OPEN; setp.lt.u32 %p, %t, 96; @!%p bra E;\n MUL; //!\n CLOSE;", "has ended without executing this"},
	{"other products in a warp", ready + "GROUP; OPEN; setp.lt.u32 %p, %t, 96; @!%p bra M;\n MUL; //!\n bra N; M:\n MUL; //!\n N: CLOSE;", "of the same warpgroup has executed the instruction of line"},
	{"scale-d that differs", ready + "GROUP; setp.lt.u32 %q, %t, 32; OPEN;\n MUL; //!\n CLOSE;", "scale-d differs from that of warp"},
	{"scale-d that differs in a warp", ready + "GROUP; setp.lt.u32 %q, %t, 16; OPEN;\n MUL; //!\n CLOSE;", "threads of the warp differ in scale-d"},

	// Wrong uses of setmaxnreg. In a kernel for 384 threads each thread begins with 168 registers.
	{"more registers by dec", "setmaxnreg.dec.sync.aligned.u32 160;\n setmaxnreg.dec.sync.aligned.u32 168; //!", "setmaxnreg.dec to 168 registers, and each thread has 160"},
	{"fewer registers by inc", "\n setmaxnreg.inc.sync.aligned.u32 160; //!", "setmaxnreg.inc to 160 registers, and each thread has 168"},
	{"registers that nobody gives back", "@!%first bra M; setmaxnreg.dec.sync.aligned.u32 160; bra E; M:\n setmaxnreg.inc.sync.aligned.u32 184; //!", "waits for 184 registers a thread, of which the block has"},
	{"setmaxnreg without a thread", "setp.ne.u32 %p, %t, 70;\n @%p setmaxnreg.dec.sync.aligned.u32 160; //!", "the thread does not take part in setmaxnreg"},
	{"setmaxnreg of other warps", "setp.lt.u32 %p, %t, 32; @!%p bra M;\n setmaxnreg.dec.sync.aligned.u32 160; //!\n bra E; M:\n setmaxnreg.dec.sync.aligned.u32 160; //!", "of the same warpgroup has executed the instruction of line"},
}

// TestHopperCatches: the emulator reports each of hopperMistakes, with the right words and at the
// right line.
func TestHopperCatches(t *testing.T) {
	for _, c := range hopperMistakes {
		lines := map[int]bool{}
		for i, s := range strings.Split(hopperSmall(c.body), "\n") {
			lines[i+1] = strings.Contains(s, "//!")
		}
		seeds := []uint64{0, 1, 2, 3, 4, 5}
		if strings.Contains(c.body, "volatile") { // here the waiting warp runs last, since waiting is slow in the interpreter
			seeds = []uint64{7}
		}
		for _, seed := range seeds {
			err := runHopperSmall(t, c.body, 256, seed)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, seed %d: error %v, want one with %q", c.name, seed, err, c.want)
			} else if !lines[e.Line] || e.Kernel != "k" {
				t.Errorf("%s: error %v is at the wrong place", c.name, err)
			}
		}
	}
}

// TestHopperAllowed: correct kernels that resemble hopperMistakes run without an error.
func TestHopperAllowed(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"stored, fenced and multiplied", ready + "GROUP; OPEN; MUL; MUL; CLOSE; mov.f32 %f, %d0;"},
		{"stored and fenced by one thread", "ONLY st.shared.v4.b32 [space], {%z,%z,%z,%z}; ONLY fence.proxy.async.shared::cta; ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 16; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group.read 0;"},
		{"copied by cp.async, fenced and multiplied", "FILL; and.b32 %x, %t, 127; shl.b32 %x, %x, 4; cvt.u64.u32 %r, %x; add.u64 %r, %p0, %r; cp.async.ca.shared.global [%s], [%r], 16; cp.async.wait_all; fence.proxy.async; bar.sync 0; GROUP; OPEN; MUL; CLOSE;"},
		{"copied, waited for and multiplied", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 16384; ONLY LOAD(0,ONE) ONLY LOAD(8192,ONE) WAIT(ONE,0) GROUP; OPEN; MUL; CLOSE;"},
		{"one warp has waited for all", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) setp.lt.u32 %p, %t, 32; @!%p bra M; WAIT(ONE,0) M: bar.sync 0; ld.shared.b32 %x, [%s];"},
		{"one warp has waited for one that arrives elsewhere", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) setp.lt.u32 %p, %t, 32; @!%p bra M; WAIT(ONE,0) ONLY mbarrier.arrive.shared::cta.b64 _, [ALSO]; M: WAIT(ALSO,0) ld.shared.b32 %x, [%s];"},
		{"expected after the copy began", "ONLY LOAD(0,ONE) ONLY mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [ONE], 8192; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; WAIT(ONE,0)"},
		{"copied in two phases", "ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) WAIT(ONE,0) ld.shared.b32 %x, [space]; bar.sync 0; ONLY mbarrier.arrive.expect_tx.shared::cta.b64 _, [ONE], 8192; ONLY LOAD(0,ONE) WAIT(ONE,1) ld.shared.b32 %x, [space];"},
		{"a phase before the first is over", "WAIT(ONE,1)"},
		{"waiting for a state", "ONLY mbarrier.arrive.release.cta.shared::cta.b64 %state, [ONE]; V: @%zero mbarrier.test_wait.acquire.cta.shared::cta.b64 %q, [ONE], %state; @!%zero bra E; @!%q bra V;"},
		{"two arrivals at once", "ONLY mbarrier.arrive.shared::cta.b64 _, [TWO], 2; WAIT(TWO,0)"},
		{"generic addresses", "mov.u32 %x, space; cvt.u64.u32 %r, %x; cvta.shared.u64 %r, %r; ONLY mbarrier.arrive.b64 %state, [%r+16384]; V: mbarrier.try_wait.parity.b64 %q, [%r+16384], 0, 1000; @!%q bra V;"},
		{"memory that was an mbarrier", "ONLY mbarrier.inval.shared::cta.b64 [ONE]; ONLY st.shared.b64 [ONE], %p0; ONLY ld.shared.b64 %r, [ONE];"},
		{"an mbarrier made again", "ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; ONLY mbarrier.inval.shared::cta.b64 [ONE]; ONLY mbarrier.init.shared::cta.b64 [ONE], 1; bar.sync 0; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; WAIT(ONE,0)"},
		{"a wait that is given up", "setp.ge.u32 %p, %t, 32; @%p bra M; mbarrier.try_wait.parity.shared::cta.b64 %q, [ONE], 0; ONLY mbarrier.arrive.shared::cta.b64 _, [ALSO]; bra E; M: WAIT(ALSO,0)"},
		{"copied out and overwritten", ready + "ONLY cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [space]; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; bar.sync 0; st.shared.b32 [%s], %z;"},
		{"fenced by one half of the warp, then by the other", "FILL; and.b32 %x, %t, 16; setp.eq.u32 %p, %x, 0; @%p fence.proxy.async; @!%p fence.proxy.async; bar.sync 0; GROUP; OPEN; MUL; CLOSE;"},
		{"made by one thread, stored by another", "bar.sync 0; @!%first bra E; ONLY mbarrier.init.shared::cta.b64 [space+16408], 1; setp.eq.u32 %p, %t, 5; @%p st.shared.v4.b32 [space], {%z,%z,%z,%z}; @%p fence.proxy.async; @%p cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 16; @%p cp.async.bulk.commit_group; @%p cp.async.bulk.wait_group 0;"},
		{"stored by all, then by one", ready + "ONLY st.shared.v4.b32 [space], {%z,%z,%z,%z}; ONLY fence.proxy.async; ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 16; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group 0;"},
		{"stored before an arrival", "ONLY st.shared.b32 [space], %z; ONLY mbarrier.arrive.shared::cta.b64 _, [ONE]; WAIT(ONE,0) ld.shared.b32 %x, [space];"},
		{"a state whose phase another warp ends", "setp.eq.u32 %p, %t, 32; @%p st.shared.b32 [space], %z; @%p mbarrier.arrive.shared::cta.b64 _, [TWO]; @!%zero bra E; mbarrier.arrive.shared::cta.b64 %state, [TWO]; V: mbarrier.test_wait.shared::cta.b64 %q, [TWO], %state; @!%q bra V; ld.shared.b32 %x, [space];"},
		{"copied out and read back", ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; ONLY cp.async.bulk.commit_group; ONLY cp.async.bulk.wait_group 0; ONLY ld.global.b32 %x, [%p0]; setp.ne.u32 %p, %x, 0; @!%zero bra E; @%p trap;"},
		{"registers given and taken", "@%first bra M; setmaxnreg.dec.sync.aligned.u32 96; bra E; M: setmaxnreg.inc.sync.aligned.u32 240;"},
		{"an older group waited for", ready + "GROUP; OPEN; MUL; wgmma.commit_group.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d8,%d9,%d10,%d11}, %da, %db, %q, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; mov.f32 %f, %d0; wgmma.wait_group.sync.aligned 0; mov.f32 %f, %d8;"},
		{"other things that order little", "fence.proxy.async.global; fence.acq_rel.cta;"},
	} {
		for seed := range uint64(6) {
			if err := runHopperSmall(t, c.body, 256, seed); err != nil {
				t.Errorf("%s, seed %d: %v", c.name, seed, err)
			}
		}
	}
}

// TestPartialWarpgroup: in a block of five warps, the first four are a warpgroup and can execute
// wgmma. The fifth warp cannot.
func TestPartialWarpgroup(t *testing.T) {
	body := strings.ReplaceAll(ready, "FILL", "@%first bra A; bra B; A: FILL; st.shared.v4.b32 [%s+2048], {%z,%z,%z,%z}; st.shared.v4.b32 [%s+6144], {%z,%z,%z,%z}; st.shared.v4.b32 [%s+10240], {%z,%z,%z,%z}; st.shared.v4.b32 [%s+14336], {%z,%z,%z,%z}; B:")
	if err := runHopperSmall(t, body+"GROUP; OPEN; MUL; CLOSE;", 160, 0); err != nil {
		t.Error(err)
	}
	err := runHopperSmall(t, body+"OPEN; MUL; CLOSE;", 160, 0)
	if err == nil || !strings.Contains(err.Error(), "wgmma by a warpgroup that has only 32 threads") {
		t.Error(err)
	}
}

// TestBulkStoresEnd: when a block ends, its bulk copies to global memory are complete, even if the
// kernel waited only until their shared memory was read.
func TestBulkStoresEnd(t *testing.T) {
	var h heap
	buf := h.add("ones", bytes.Repeat([]byte{1}, 8192))
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	text := hopperSmall(ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;")
	l := Launch{Kernel: parse(t, text).Kernel("k"), Grid: dim(1), Block: dim(256), Memory: h, Params: append(m[:], params(buf.Base)...)}
	touched := testkit.Must(l.Run())(t)
	if !bytes.Equal(buf.Data[:65], append(make([]byte, 64), 1)) {
		t.Errorf("%v", buf.Data[:65])
	}
	if len(touched) != 1 || touched[0].WriteFrom != 0 || touched[0].WriteTo != 64 {
		t.Errorf("touched %+v", touched)
	}
}

// TestBulkRaces: the emulator reports a race if two blocks write the same bytes by bulk copies.
func TestBulkRaces(t *testing.T) {
	var h heap
	buf := h.add("ones", make([]byte, 8192))
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	text := hopperSmall(ready + "ONLY cp.async.bulk.global.shared::cta.bulk_group [%p0], [space], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;")
	l := Launch{Kernel: parse(t, text).Kernel("k"), Grid: dim(2), Block: dim(256), Memory: h, CheckGlobal: true, Params: append(m[:], params(buf.Base)...)}
	if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "of the same launch writes it too") {
		t.Error(err)
	}
}

// TestRegistersAtStart: the number of registers of a thread at the start of a kernel follows from
// its directives as in ptxas.
func TestRegistersAtStart(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, ".maxntid 384, 1, 1": 168, ".maxntid 128, 2": 256, ".maxntid 160": 256, ".maxntid 128, 1, 1\n.minnctapersm 3": 168, ".maxntid 1024\n.maxnreg 56": 56, ".reqntid 512, 1, 1": 128,
	} {
		k := parse(t, hopperHeader+".visible .entry k()\n"+text+"\n{\nret;\n}").Kernel("k")
		if got := k.registersAtStart(); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	k := parse(t, hopperHeader+".visible .entry k()\n{\nsetmaxnreg.dec.sync.aligned.u32 24;\nret;\n}").Kernel("k")
	l := Launch{Kernel: k, Grid: dim(1), Block: dim(128)}
	if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "setmaxnreg in a kernel without .maxnreg or .maxntid") {
		t.Error(err)
	}
}

// TestDescriptors: tileOf rejects invalid wgmma descriptors, and finds the rows of a matrix that
// starts within the swizzle pattern.
func TestDescriptors(t *testing.T) {
	const swizzled = 1 << 62
	for d, want := range map[uint64]string{
		swizzled | 3<<49 | 64<<32 | 3*8: "",
		swizzled | 2<<49 | 64<<32 | 3*8: "has base offset 2 and begins at offset 384, where it is 3",
		1<<49 | 64<<32:                  "has a base offset and no swizzle",
		1 << 14:                         "has bits that mean nothing",
		1 << 46:                         "has bits that mean nothing",
		3<<62 | 2:                       "begins at offset 32, which is in row 1 of the swizzle's pattern of 256 bytes",
		2<<62 | 4:                       "begins at offset 64, which is in row 1 of the swizzle's pattern of 512 bytes",
	} {
		if _, err := tileOf(d); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%#x: %v, want %q", d, err, want)
		}
	}
	o, _ := tileOf(swizzled | 3<<49 | 64<<32 | 3*8)
	for row := range uint32(5) { // rows before the end of the pattern
		if got, want := o.along(row, 1), 384+row*128+16^row<<4; got != want {
			t.Errorf("row %d lies at %d, want %d", row, got, want)
		}
	}
	across, _ := tileOf(swizzled | 64<<32 | 8<<16)
	if err := across.fits(64, true); err != nil {
		t.Error(err)
	}
	if err := across.fits(72, true); err == nil || !strings.Contains(err.Error(), "the leading byte offset of 128") {
		t.Error(err)
	}
}

// TestLargerBlocks: a kernel can run with a larger block after a smaller one; the state of shared
// memory then has room for more warps.
func TestLargerBlocks(t *testing.T) {
	k := parse(t, hopperSmall("st.shared.b32 [%s+8192], %z; ld.shared.b32 %x, [%s+8192];")).Kernel("k")
	var h heap
	buf := h.add("ones", make([]byte, 8192))
	m := tile{0, 64, 128, false}.tensor(buf.Base).Encode()
	for _, threads := range []uint32{32, 384, 64} {
		l := Launch{Kernel: k, Grid: dim(1), Block: dim(threads), Memory: h, Threads: 1, Params: append(m[:], params(buf.Base)...)}
		if _, err := l.Run(); err != nil {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

// tensorCopy returns a kernel that copies a box of a tensor to shared memory, and the bytes from
// there unchanged to out. With store, it copies bytes from memory to shared memory, and from there
// to the box.
func tensorCopy(rank, bytes int, at []int, store bool) string {
	coords := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(at)), ", "), "[]")
	first := fmt.Sprintf("cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%%map, {%s}], [space+65536];", rank, coords)
	then := fmt.Sprintf("cp.async.bulk.global.shared::cta.bulk_group [%%p], [space], %d;", bytes)
	if store {
		first = fmt.Sprintf("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%%p], %d, [space+65536];", bytes)
		then = fmt.Sprintf("cp.async.bulk.tensor.%dd.global.shared::cta.bulk_group [%%map, {%s}], [space];", rank, coords)
	}
	return hopperHeader + fmt.Sprintf(`.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p)
{
	.reg .pred %%q;
	.reg .b32 %%a, %%z;
	.reg .b64 %%map, %%p;
	.shared .align 1024 .b8 space[65544];
	mov.b64 %%map, m; cvta.param.u64 %%map, %%map;
	ld.param.u64 %%p, [p];
	mbarrier.init.shared::cta.b64 [space+65536], 1;
	mov.u32 %%a, space; mov.u32 %%z, -1;
	FILL: st.shared.v4.b32 [%%a], {%%z, %%z, %%z, %%z}; add.u32 %%a, %%a, 16; setp.lt.u32 %%q, %%a, %d; @%%q bra FILL;
	fence.proxy.async;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [space+65536], %d;
	%s
	W: mbarrier.try_wait.parity.shared::cta.b64 %%q, [space+65536], 0; @!%%q bra W;
	%s
	cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
	ret;
}`, bytes, bytes, first, then)
}

// TestTensorCopies: bulk copies of boxes move the same bytes as a loop over the elements, for
// tensors of one to five dimensions and boxes that lie partly outside. In shared memory, the 16
// bytes at address a are stored at a XOR (a/128 mod 8)·16; narrower swizzles use fewer rows.
func TestTensorCopies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		m := &TensorMap{Element: []int{2, 4}[n%2], Rank: 1 + n/2%5, Swizzle: []int{16, 32, 64, 128}[n/10%4]}
		row := m.Swizzle
		if row == 16 {
			row = 16 * (1 + rng.IntN(4))
		}
		size, at := row, make([]int, m.Rank)
		m.Box[0] = uint32(row / m.Element)
		m.Stride[0], m.Size[0] = uint64(m.Element), 1+rng.Uint64N(100)
		pitch := (m.Size[0]*uint64(m.Element)+15)/16*16 + 16*rng.Uint64N(2)
		for i := range m.Rank {
			if i > 0 {
				m.Size[i], m.Box[i], m.Stride[i] = 1+rng.Uint64N(5), 1+rng.Uint32N(4), pitch
				pitch *= m.Size[i]
				size *= int(m.Box[i])
			}
			at[i] = rng.IntN(int(m.Size[i])+3) - 2
		}
		store := n%4 >= 2
		var h heap
		tensor, raw := h.add("tensor", make([]byte, pitch)), h.add("raw", make([]byte, size))
		m.Address = tensor.Base
		for _, b := range [][]byte{tensor.Data, raw.Data} {
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		}
		wantTensor, wantRaw := bytes.Clone(tensor.Data), bytes.Clone(raw.Data)
		for i := range size / m.Element { // an element of the box
			linear, left, address, inside := i*m.Element, i, 0, true
			for d := range m.Rank {
				x := at[d] + left%int(m.Box[d])
				left /= int(m.Box[d])
				inside = inside && x >= 0 && x < int(m.Size[d])
				address += x * int(m.Stride[d])
			}
			shared := linear ^ linear/128%(m.Swizzle/16)*16
			switch {
			case store && inside:
				copy(wantTensor[address:][:m.Element], raw.Data[shared:])
			case !store && inside:
				copy(wantRaw[shared:][:m.Element], tensor.Data[address:])
			case !store:
				clear(wantRaw[shared:][:m.Element])
			}
		}
		encoded := m.Encode()
		l := Launch{Kernel: parse(t, tensorCopy(m.Rank, size, at, store)).Kernel("k"), Grid: dim(1), Block: dim(1), Memory: h, Seed: uint64(n), CheckGlobal: true,
			Params: append(encoded[:], params(raw.Base)...)}
		if _, err := l.Run(); err != nil {
			t.Fatalf("%+v at %v, store %v: %v", m, at, store, err)
		}
		if !bytes.Equal(tensor.Data, wantTensor) || !bytes.Equal(raw.Data, wantRaw) {
			t.Fatalf("%+v at %v, store %v: bytes differ", m, at, store)
		}
	}
}
