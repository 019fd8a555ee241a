package ptx

import "fmt"

// operandTile is a matrix in shared memory as the 64 bits of a wgmma descriptor describe it, in bytes.
// Source: PTX ISA 8.0, "Matrix descriptor format"; the layouts are those of CUTLASS's
// make_gmma_desc (include/cute/atom/mma_traits_sm90_gmma.hpp).
type operandTile struct {
	start, leading, stride uint32
	base                   uint32 // row of the swizzle's pattern with which the matrix begins
	width                  uint32 // of a row of the swizzle's pattern; 16: none
}

const descriptorBits = 0xc00e_3fff_3fff_3fff

// widths are the swizzle modes of bits 62 and 63.
var widths = [4]uint32{16, 128, 64, 32}

// tileOf reads a descriptor; what is wrong with it is an error.
func tileOf(d uint64) (operandTile, error) {
	t := operandTile{uint32(d&0x3fff) << 4, uint32(d>>16&0x3fff) << 4, uint32(d>>32&0x3fff) << 4, uint32(d >> 49 & 7), widths[d>>62]}
	pattern := 8 * t.width
	switch {
	case d&^uint64(descriptorBits) != 0:
		return t, fmt.Errorf("descriptor %#016x has bits that mean nothing: a part of it overflowed", d)
	case t.width == 16 && t.base != 0:
		return t, fmt.Errorf("descriptor %#016x has a base offset and no swizzle", d)
	case t.width != 16 && t.base == 0 && t.start%pattern >= t.width:
		return t, fmt.Errorf("descriptor %#016x begins at offset %d, which is in row %d of the swizzle's pattern of %d bytes and not in its first", d, t.start,
			t.start%pattern/t.width, pattern)
	case t.base != 0 && t.start>>7&7 != t.base:
		return t, fmt.Errorf("descriptor %#016x has base offset %d and begins at offset %d, where it is %d", d, t.base, t.start, t.start>>7&7)
	}
	return t, nil
}

// fits checks the distances between the parts of a matrix of so many rows (of M or N) and 16 columns (of K). across is
// true where the rows lie along memory.
func (t operandTile) fits(rows uint32, across bool) error {
	if t.width == 16 {
		return nil
	}
	check := func(what string, n uint32) error {
		if n%(8*t.width) != 0 {
			return fmt.Errorf("the %s byte offset of %d is no multiple of the swizzle's pattern of %d bytes", what, n, 8*t.width)
		}
		return nil
	}
	if across && 2*rows > t.width {
		if err := check("leading", t.leading); err != nil {
			return err
		}
	}
	if across || rows > 8 {
		return check("stride", t.stride)
	}
	return nil
}

// along is where the 16 bytes with columns 8·half to 8·half+7 of a row lie, for a matrix whose columns lie
// along memory (K-major).
func (t operandTile) along(row, half uint32) uint32 {
	step := uint32(16)
	if t.width == 16 {
		step = t.leading
	}
	return t.swizzled(t.start + row%8*t.width + row/8*t.stride + half*step)
}

// across is where the 16 bytes with rows 8·eight to 8·eight+7 of a column lie, for a matrix whose rows lie
// along memory (MN-major).
func (t operandTile) across(column, eight uint32) uint32 {
	if t.width == 16 {
		return t.start + column%8*16 + column/8*t.leading + eight*t.stride
	}
	n := t.width / 16
	return t.swizzled(t.start + eight%n*16 + eight/n*t.leading + column%8*t.width + column/8*t.stride)
}

// swizzled exchanges pieces of 16 bytes within rows of 128: bits 4 to 6 of an address (as many as the swizzle has) with
// bits from 7 on.
func (t operandTile) swizzled(at uint32) uint32 {
	return at ^ (at>>7-t.base)&(t.width/16-1)<<4
}

// pieces appends where the pieces of a matrix lie, in the order of along (row, half) or across (column, eight).
func (t operandTile) pieces(to []uint32, rows uint32, across bool) []uint32 {
	if across {
		for column := range uint32(16) {
			for eight := range rows / 8 {
				to = append(to, t.across(column, eight))
			}
		}
		return to
	}
	for row := range rows {
		to = append(to, t.along(row, 0), t.along(row, 1))
	}
	return to
}
