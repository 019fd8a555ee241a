package ptx

import (
	"strings"
	"testing"

	"mt/internal/testkit"
)

// inOrder is a kernel whose blocks take tickets. Each block waits until the block with the ticket
// before has appended its ticket to a list of 16, and then appends its own. The ticket counter and
// the length of the list follow the list in memory.
const inOrder = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .pred %p; .reg .b32 %t, %b, %n; .reg .b64 %g, %x;
ld.param.u64 %g, [p];
atom.global.add.u32 %t, [%g+64], 1;
WAIT:
ld.relaxed.gpu.global.u32 %b, [%g+68];
setp.ne.u32 %p, %b, %t;
@%p bra WAIT;
atom.global.add.u32 %n, [%g+68], 0;
mul.wide.u32 %x, %n, 4;
add.s64 %x, %g, %x;
st.global.u32 [%x], %t;
red.global.add.u32 [%g+68], 1;
ret;
}`

// TestTogether: blocks that wait for each other all end, in whatever order they run by turns. For
// blocks that do not wait, the same seed gives the same result, and not all seeds give the same.
func TestTogether(t *testing.T) {
	run := func(src string, together, threads int, seed uint64) (string, error) {
		var h heap
		list := make([]byte, 72)
		buffer := h.add("list", list)
		l := Launch{Kernel: parse(t, src).Kernel("k"), Grid: dim(16), Block: dim(1), Params: params(buffer.Base), Memory: h, Together: together, Threads: threads, Seed: seed}
		_, err := l.Run()
		return string(list[:64]), err
	}
	want := testkit.Must(run(inOrder, 0, 1, 1))(t)
	hasty := strings.Replace(inOrder, "setp.ne.u32 %p, %b, %t;", "setp.ne.u32 %p, %t, %t;", 1)
	orders := map[string]bool{}
	for seed := range uint64(8) {
		for _, together := range []int{0, 2, 5, 16, 20} {
			if got, err := run(inOrder, together, 4, seed); err != nil || got != want {
				t.Errorf("%d blocks at a time, seed %d: %q, %v, want %q", together, seed, got, err, want)
			}
		}
		one, err := run(hasty, 16, 0, seed)
		two, err2 := run(hasty, 16, 0, seed)
		if err != nil || err2 != nil || one != two {
			t.Errorf("seed %d: %q, %v and %q, %v", seed, one, err, two, err2)
		}
		orders[one] = true
	}
	if len(orders) < 2 {
		t.Error("all seeds give one order")
	}
}

// TestWaitsInVain: a launch fails if its blocks wait for a value that no block will ever write.
func TestWaitsInVain(t *testing.T) {
	defer func(n int) { inVain = n }(inVain)
	inVain = 1000
	for _, together := range []int{0, 3} {
		var h heap
		buffer := h.add("list", make([]byte, 72))
		src := strings.Replace(inOrder, "red.global.add.u32 [%g+68], 1;", "", 1)
		l := Launch{Kernel: parse(t, src).Kernel("k"), Grid: dim(16), Block: dim(1), Params: params(buffer.Base), Memory: h, Together: together, Threads: 2}
		if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "waits for list to change") {
			t.Errorf("%d blocks at a time: %v", together, err)
		}
	}
}

// TestStrongLoadsAreFresh: each strong load (ld.relaxed) counts as a read of the L2 cache, since
// other blocks may have written the word. A repeated weak load does not.
func TestStrongLoadsAreFresh(t *testing.T) {
	twice := func(load string) int64 { return counted(t, 32, at("%t", 4)+load+load).Sum.Fresh }
	if weak, strong := twice("ld.global.u32 %b, [%x];\n"), twice("ld.relaxed.gpu.global.u32 %b, [%x];\n"); weak != 4 || strong != 8 {
		t.Errorf("%d and %d fresh sectors, want 4 and 8", weak, strong)
	}
}
