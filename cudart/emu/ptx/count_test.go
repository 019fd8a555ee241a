package ptx

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// counted runs a kernel of one or more warps and returns its counts. body is its PTX. It has the
// thread in %t, the lane in %l, the address of 64 KiB of global memory in %g, and 16 KiB of shared
// memory at address 0.
func counted(t *testing.T, threads uint32, body string) *Count {
	t.Helper()
	src := `.version 8.0
.target sm_80
.address_size 64
.shared .align 128 .b8 space[16384];
.visible .entry k(.param .u64 p)
{
.reg .pred %p<8>; .reg .b32 %t, %l, %a, %b, %c, %d; .reg .b64 %g, %x, %y;
ld.param.u64 %g, [p];
mov.u32 %t, %tid.x;
and.b32 %l, %t, 31;
mov.u32 %a, space;
` + body + "\nret;\n}"
	var h heap
	buffer := h.add("memory", make([]byte, 64<<10))
	c := &Count{}
	l := Launch{Kernel: parse(t, src).Kernel("k"), Grid: dim(1), Block: dim(threads), Params: params(buffer.Base), Memory: h, Count: c}
	testkit.Must(l.Run())(t)
	return c
}

// at returns PTX that sets %x to the global address of element index·stride, with stride in bytes, and %a to the same
// offset in shared memory.
func at(index string, stride int) string {
	return fmt.Sprintf("mul.lo.u32 %%a, %s, %d; cvt.u64.u32 %%x, %%a; add.s64 %%x, %%g, %%x;\n", index, stride)
}

func TestSectors(t *testing.T) {
	for _, c := range []struct {
		stride  int
		load    string
		bytes   int64
		sectors int64
	}{
		{4, "ld.global.u32 %b, [%x];", 128, 4},
		{0, "ld.global.u32 %b, [%x];", 128, 1},
		{8, "ld.global.u32 %b, [%x];", 128, 8},
		{32, "ld.global.u32 %b, [%x];", 128, 32},
		{2, "{ .reg .b16 %h; ld.global.u16 %h, [%x]; }", 64, 2},
		{16, "ld.global.v4.u32 {%b, %c, %d, %l}, [%x];", 512, 16},
		{16, "ld.v4.u32 {%b, %c, %d, %l}, [%x];", 512, 16}, // a generic address
	} {
		got := counted(t, 32, at("%t", c.stride)+c.load).Sum.Load
		if want := (Traffic{1, c.bytes, c.sectors}); got != want {
			t.Errorf("%s at a stride of %d: %+v, want %+v", c.load, c.stride, got, want)
		}
	}
}

// TestBanks: the number of wavefronts follows from the 32 banks, for accesses of each width and
// stride.
func TestBanks(t *testing.T) {
	for _, c := range []struct {
		stride                int
		store                 string
		wavefronts, conflicts int64
	}{
		{4, "st.shared.u32 [%a], %t;", 1, 0},
		{8, "st.shared.u32 [%a], %t;", 2, 1},
		{128, "st.shared.u32 [%a], %t;", 32, 31},
		{132, "st.shared.u32 [%a], %t;", 1, 0},
		{0, "st.shared.u32 [%a], %t;", 1, 0}, // all threads request one word
		{2, "{ .reg .b16 %h; cvt.u16.u32 %h, %t; st.shared.u16 [%a], %h; }", 1, 0},
		{8, "cvt.u64.u32 %y, %a; cvta.shared.u64 %x, %y;\nst.u32 [%x], %t;", 2, 1}, // a generic address
		{8, "st.shared.v2.u32 [%a], {%t, %l};", 2, 0},
		{256, "st.shared.v2.u32 [%a], {%t, %l};", 32, 30},
		{16, "st.shared.v4.u32 [%a], {%t, %l, %t, %l};", 4, 0},
		{128, "st.shared.v4.u32 [%a], {%t, %l, %t, %l};", 32, 28},
		{144, "st.shared.v4.u32 [%a], {%t, %l, %t, %l};", 4, 0},
		{64, "st.shared.v4.u32 [%a], {%t, %l, %t, %l};", 16, 12},
		{16, "setp.lt.u32 %p1, %t, 9;\n@%p1 st.shared.v4.u32 [%a], {%t, %l, %t, %l};", 2, 0}, // nine threads
	} {
		got := counted(t, 32, at("%t", c.stride)+c.store).Sum.SharedStore
		if want := (Banks{1, c.wavefronts, c.conflicts}); got != want {
			t.Errorf("%s at a stride of %d: %+v, want %+v", c.store, c.stride, got, want)
		}
	}
}

// TestTranspose: a transpose of 32 × 32 words in shared memory has bank conflicts with rows of 32
// words, which put a column into one bank, and none with rows of 33 words.
func TestTranspose(t *testing.T) {
	for pitch, conflicts := range map[int]int64{32: 32 * 31, 33: 0} {
		row, column := "shr.u32 %b, %t, 5;", "" // %b: the row, %l: the column
		column = fmt.Sprintf("mul.lo.u32 %%c, %%l, %d; add.u32 %%c, %%c, %%b; shl.b32 %%c, %%c, 2;\n", pitch)
		got := counted(t, 1024, row+at("%t", 4)+fmt.Sprintf("ld.global.u32 %%d, [%%x];\nmul.lo.u32 %%a, %%b, %d; add.u32 %%a, %%a, %%l; shl.b32 %%a, %%a, 2;\n", pitch)+
			"st.shared.u32 [%a], %d;\nbar.sync 0;\n"+column+"ld.shared.u32 %d, [%c];\nst.global.u32 [%x], %d;").Sum
		moved := Traffic{32, 4096, 128}
		if got.Load != moved || got.Store != moved {
			t.Errorf("rows of %d: loads %+v and stores %+v, want %+v of both", pitch, got.Load, got.Store, moved)
		}
		if want := (Banks{32, 32 + conflicts, conflicts}); got.SharedLoad != want || got.SharedStore != (Banks{32, 32, 0}) {
			t.Errorf("rows of %d: columns are read with %+v, want %+v; rows written with %+v", pitch, got.SharedLoad, want, got.SharedStore)
		}
		if got.By[ClassBarrier] != 32 {
			t.Errorf("%d warps at a barrier, want 32", got.By[ClassBarrier])
		}
	}
}

func TestDivergence(t *testing.T) {
	for _, c := range []struct {
		what, body         string
		divergent, squares int64
	}{
		{"odd threads", "and.b32 %b, %t, 1; setp.eq.u32 %p1, %b, 0;\n@%p1 bra END;\nmul.lo.u32 %b, %t, %t;\nEND:", 2, 2},
		{"whole warps", "setp.lt.u32 %p1, %t, 32;\n@%p1 bra END;\nmul.lo.u32 %b, %t, %t;\nEND:", 0, 1},
		{"all threads", "setp.lt.u32 %p1, %t, 64;\n@%p1 bra END;\nmul.lo.u32 %b, %t, %t;\nEND:", 0, 0},
		{"a guard in place of a branch", "setp.lt.u32 %p1, %t, 32;\n@%p1 mul.lo.u32 %b, %t, %t;", 0, 1},
		{"a loop that half of the threads leave", "mov.u32 %b, %l;\nNEXT: mul.lo.u32 %c, %b, %b; add.u32 %b, %b, 16;\nsetp.lt.u32 %p1, %b, 32;\n@%p1 bra NEXT;", 2, 4},
		{"a table", "and.b32 %b, %l, 1; T: .branchtargets A, B;\nbrx.idx %b, T;\nA: mul.lo.u32 %c, %t, %t; bra END;\nB: mul.lo.u32 %c, %l, %l;\nEND:", 2, 4},
	} {
		got := counted(t, 64, c.body).Sum
		if got.Divergent != c.divergent || got.By[ClassMultiply] != c.squares {
			t.Errorf("%s: %d branches part threads and %d products, want %d and %d", c.what, got.Divergent, got.By[ClassMultiply], c.divergent, c.squares)
		}
		if off := got.Off; (off == 1) != strings.Contains(c.what, "guard") {
			t.Errorf("%s: %d instructions are off", c.what, off)
		}
	}
}

// TestCountedProduct: the counts of the tiled matrix product in testdata are those that follow from
// its source: four warps compute a tile of 64 × 64, with 32 of k at a time.
func TestCountedProduct(t *testing.T) {
	const m, n, k = 128, 192, 96
	const blocks, steps = m / 64 * n / 64, k / 32
	l, check := gemmRun(t, m, n, k, 1)
	l.Count = &Count{}
	testkit.Must(l.Run())(t)
	testkit.NoError(t, check())
	got := l.Count.Sum
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"blocks", got.Blocks, blocks},
		{"warps", got.Warps, 4 * blocks},
		{"products", got.Products, m * n * k},
		{"mma", got.By[ClassMMA16], m * n * k / 2048},
		{"ldmatrix", got.By[ClassLdmatrix], blocks * steps * 4 * 10},
		{"copies", got.By[ClassCopy], blocks * steps * 4 * 4},
		{"bytes copied", got.Copied.Bytes, blocks * steps * 2 * 64 * 32 * 2},
		{"sectors copied", got.Copied.Sectors, blocks * steps * 2 * 64 * 32 * 2 / 32},
		{"bytes stored", got.Store.Bytes, m * n * 4},
		{"sectors read, once a block", got.Fresh, blocks * 2 * 64 * k * 2 / 32},
		{"sectors stored", got.Store.Sectors, m * n * 4 / 32},
		{"barriers", got.By[ClassBarrier], blocks * 4 * 2 * steps},
		// With rows of 80 or 144 bytes, eight rows of a matrix lie in different banks.
		{"conflicts of ldmatrix", got.SharedLoad.Conflicts, 0},
		{"wavefronts of ldmatrix", got.SharedLoad.Wavefronts, blocks * steps * 4 * 10 * 4},
		// Eight threads copy four chunks of two 80-byte rows; the first and the last chunk share banks. With 144-byte
		// rows they copy one row.
		{"conflicts of copies", got.SharedStore.Conflicts, blocks * steps * 4 * 2 * 4},
		{"instructions", got.Issued(), l.steps},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
}

// TestCountsOrder: counts do not depend on the order of blocks and warps or on the number of goroutines. A block
// counts the same alone and among others.
func TestCountsOrder(t *testing.T) {
	var all *Count
	for seed := range uint64(4) {
		l, _ := gemmRun(t, 128, 192, 96, seed)
		l.Threads, l.Count = 1+int(seed), &Count{Traced: []uint32{4}}
		testkit.Must(l.Run())(t)
		if all == nil {
			all = l.Count
		}
		if !reflect.DeepEqual(all, l.Count) {
			t.Errorf("seed %d: other counts", seed)
		}
	}
	if len(all.Blocks) != 6 || len(all.Traces) != 1 {
		t.Fatalf("counts of %d blocks, traces of %d", len(all.Blocks), len(all.Traces))
	}
	l, _ := gemmRun(t, 128, 192, 96, 9)
	l.Only, l.Count = []uint32{5, 2}, &Count{}
	testkit.Must(l.Run())(t)
	if len(l.Count.Blocks) != 2 || l.Count.Sum.Blocks != 2 || l.Count.Blocks[5] == nil || l.Count.Blocks[2] == nil {
		t.Fatalf("%d blocks ran, 5 and 2 were to", len(l.Count.Blocks))
	}
	for at, n := range l.Count.Blocks {
		if *n != *all.Blocks[at] {
			t.Errorf("block %d alone counts %+v, among others %+v", at, *n, *all.Blocks[at])
		}
	}
	steps := int64(0)
	for _, w := range all.Traces[4].Warps {
		steps += int64(len(w))
	}
	if n := all.Blocks[4]; steps != n.Issued() {
		t.Errorf("the trace of block 4 has %d instructions, %d were counted", steps, n.Issued())
	}
	l.Only = []uint32{6}
	if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "block 6 of 6") {
		t.Errorf("a block that is not there: error %v", err)
	}
}

func TestMeanings(t *testing.T) {

	for _, c := range []struct {
		text          string
		class         Class
		reads, writes int
	}{
		{"add.s32 %b, %c, 1;", ClassInteger, 1, 1},
		{"add.s64 %x, %y, %g;", ClassInteger64, 2, 1},
		{"mad.lo.s32 %b, %c, %d, %b;", ClassMultiply, 3, 1},
		{"mul.wide.u32 %x, %c, 4;", ClassMultiply, 1, 1},
		{"mul.lo.s64 %x, %y, 4;", ClassMultiply64, 1, 1},
		{"popc.b32 %b, %c;", ClassBits, 1, 1},
		{"rem.u32 %b, %c, %d;", ClassDivide, 2, 1},
		{"div.rn.f32 %b, %c, %d;", ClassDivide, 2, 1},
		{"rcp.approx.ftz.f32 %b, %c;", ClassSpecial, 1, 1},
		{"ex2.approx.ftz.f32 %b, %c;", ClassSpecial, 1, 1},
		{"fma.rn.f32 %b, %c, %d, %b;", ClassFloat, 3, 1},
		{"max.f32 %b, %c, %d;", ClassCompare, 2, 1},
		{"neg.f32 %b, %c;", ClassMove, 1, 1},
		{"cvt.rn.bf16x2.f32 %b, %c, %d;", ClassPack, 2, 1},
		{"cvt.rn.f32.s32 %b, %c;", ClassConvert, 1, 1},
		{"cvt.u64.u32 %x, %c;", ClassMove, 1, 1},
		{"@%p1 setp.lt.and.s32 %p2|%p3, %b, %c, %p4;", ClassCompare, 4, 2},
		{"and.pred %p1, %p2, %p3;", ClassCompare, 2, 1},
		{"mov.b64 %x, {%b, %c};", ClassMove, 2, 1},
		{"mov.b64 {%b, %c}, %x;", ClassMove, 1, 2},
		{"ld.global.v2.u32 {%b, %c}, [%x+8];", ClassLoadGlobal, 1, 2},
		{"st.global.v2.u32 [%x+8], {%b, %c};", ClassStoreGlobal, 3, 0},
		{"ld.shared.u32 %b, [%a];", ClassLoadShared, 1, 1},
		{"red.global.add.u32 [%x], %b;", ClassAtomic, 2, 0},
		{"cp.async.cg.shared.global [%a], [%x], 16, %b;", ClassCopy, 3, 0},
		{"cp.async.commit_group;", ClassCopyWait, 0, 0},
		{"shfl.sync.bfly.b32 %b|%p1, %c, 1, 31, -1;", ClassShuffle, 1, 2},
		{"vote.sync.any.pred %p1, %p2, -1;", ClassVote, 1, 1},
		{"bar.sync 0;", ClassBarrier, 0, 0},
		{"bar.warp.sync -1;", ClassWarpSync, 0, 0},
		{"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%b, %c}, [%a];", ClassLdmatrix, 1, 2},
		{"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%a, %b, %c, %d}, {%t, %l}, {%l}, {%a, %b, %c, %d};", ClassMMA8, 7, 4},
		{"membar.gl;", ClassFence, 0, 0},
		{"cp.async.wait_group 2;", ClassCopyWait, 0, 0},
	} {
		m := parse(t, `.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
.reg .pred %p<8>; .reg .b32 %t, %l, %a, %b, %c, %d; .reg .b64 %g, %x, %y;
`+c.text+"\n}").Kernel("k").Meanings()
		if len(m) != 2 || m[0].Class != c.class || len(m[0].Reads) != c.reads || len(m[0].Writes) != c.writes {
			t.Errorf("%s is %s and reads %d, writes %d registers, want %s, %d and %d", c.text, m[0].Class, len(m[0].Reads), len(m[0].Writes), c.class, c.reads, c.writes)
		}
		want := 0
		switch {
		case strings.Contains(c.text, "commit"):
			want = -1
		case strings.Contains(c.text, "wait_group"):
			want = 2
		}
		if m[0].Groups != want {
			t.Errorf("%s leaves %d groups under way, want %d", c.text, m[0].Groups, want)
		}
	}
}

// TestFresh: a sector that a block reads again does not count as fresh. Each block starts without
// any sectors.
func TestFresh(t *testing.T) {
	load := at("%t", 4) + "ld.global.u32 %b, [%x];\n"
	got := counted(t, 64, load+load+at("%t", 8)+"ld.global.u32 %b, [%x];").Sum
	if got.Load.Sectors != 2*2*4+2*8 || got.Fresh != 16 { // 512 bytes in all
		t.Errorf("%d sectors in requests, %d once, want 32 and 16", got.Load.Sectors, got.Fresh)
	}
	l, _ := gemmRun(t, 128, 64, 32, 1)
	l.Threads, l.Count = 1, &Count{Traced: []uint32{0}}
	testkit.Must(l.Run())(t)
	if a, b := l.Count.Blocks[0].Fresh, l.Count.Blocks[1].Fresh; a != 256 || b != 256 {
		t.Errorf("blocks read %d and %d sectors, want 256 each", a, b)
	}
	sectors, fresh := 0, 0
	for _, w := range l.Count.Traces[0].Warps {
		for _, s := range w {
			sectors, fresh = sectors+int(s.Sectors), fresh+int(s.Fresh)
		}
	}
	if sectors != 256+64*64*4/32 || fresh != 256 {
		t.Errorf("the trace has %d sectors, %d of them fresh", sectors, fresh)
	}
}

// TestCountsAdd: Add and Halve change every number of Counts. So the test fails if fields misses a
// new one.
func TestCountsAdd(t *testing.T) {
	var one, sum Counts
	v := reflect.ValueOf(&one).Elem()
	n := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case reflect.Array:
			for i := range v.Len() {
				fill(v.Index(i))
			}
		default:
			n++
			v.SetInt(int64(2 * n))
		}
	}
	fill(v)
	sum.Add(&one, 3)
	sum.Add(&one, -2)
	if sum != one {
		t.Errorf("three times less twice is %+v, want %+v", sum, one)
	}
	sum.Add(&one, 1)
	sum.Halve()
	if sum != one || len(one.fields()) != n {
		t.Errorf("half of twice is %+v, want %+v; %d fields of %d", sum, one, len(one.fields()), n)
	}
}

// TestFreshSectors: a sector is fresh once per block, however far apart the reads in between are, and again in the
// next block.
func TestFreshSectors(t *testing.T) {
	c := &counter{blocks: map[uint32]*Counts{}, read: map[uint64]uint64{}}
	for block := range 2 {
		c.begin(uint32(block), 1)
		seen := map[uint64]bool{}
		for _, sector := range []uint64{0, 0, 63, 64, 1 << 40, 64, 0, 63, 1<<40 + 1, 1 << 40, 62, 0} {
			if got := c.fresh(sector); got == seen[sector] {
				t.Errorf("block %d, sector %d: fresh is %t", block, sector, got)
			}
			seen[sector] = true
		}
	}
}

// TestForgottenPages: the access history of one launch does not affect the next one, although its
// memory is reused. No two words share a cell of the history.
func TestForgottenPages(t *testing.T) {
	b, first, second := &block{}, &Buffer{}, &Buffer{}
	b.cellAt(first, 0)
	b.forgetPages()
	cells := map[*cell]bool{}
	for _, at := range []pageOf{{first, 0}, {second, 0}, {first, 1}, {second, 1}} {
		cells[b.cellAt(at.buffer, at.n*pageWords)] = true
	}
	if len(cells) != 4 {
		t.Errorf("4 words have %d cells", len(cells))
	}
}
