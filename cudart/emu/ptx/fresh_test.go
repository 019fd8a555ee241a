package ptx

import "testing"

// TestFreshSectors: a sector is fresh once in a block, however far apart those are that are read in between, and again in
// the next block.
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

// TestForgottenPages: what a launch knew of global memory is not mixed with what the next one knows: no two words share a cell.
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
