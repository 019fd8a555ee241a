package emu_test

import (
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// tensorArguments are the arguments of cuTensorMapEncodeTiled, on the heap because C reads them by address.
type tensorArguments struct {
	_                                    [64]byte
	room                                 [192]byte
	sizes                                [5]uint64
	strides                              [4]uint64
	box, every                           [5]uint32
	kind, rank                           uint32
	address                              uint64
	interleave, swizzle, promotion, fill uint32
	shift                                uintptr // offset of the map from a multiple of 64
}

// encode calls cuTensorMapEncodeTiled, whose address is f, with these arguments, and returns its
// status code.
func (a *tensorArguments) encode(f uintptr) int {
	at := (ptr(&a.room[0])+63)&^63 + a.shift
	pointed = a
	return call(f, at, uintptr(a.kind), uintptr(a.rank), uintptr(a.address), ptr(&a.sizes[0]), ptr(&a.strides[0]), ptr(&a.box[0]), ptr(&a.every[0]),
		uintptr(a.interleave), uintptr(a.swizzle), uintptr(a.promotion), uintptr(a.fill))
}

// TestTensorMaps: the emulator rejects every argument of cuTensorMapEncodeTiled that the driver
// rejects, and records a fault.
func TestTensorMaps(t *testing.T) {
	good := func() *tensorArguments {
		return &tensorArguments{sizes: [5]uint64{1000, 70}, strides: [4]uint64{2000}, box: [5]uint32{64, 256}, every: [5]uint32{1, 1}, kind: 9, rank: 2,
			address: 1 << 40, swizzle: 3, promotion: 3}
	}
	for _, c := range []struct {
		edit func(a *tensorArguments)
		want string
	}{
		{func(a *tensorArguments) {}, ""},
		{func(a *tensorArguments) { a.kind, a.box[0] = 7, 32 }, ""},
		{func(a *tensorArguments) { a.rank = 1 }, ""},
		{func(a *tensorArguments) { a.kind = 6 }, "data type 6"},
		{func(a *tensorArguments) { a.rank = 6 }, "6 dimensions"},
		{func(a *tensorArguments) { a.rank = 0 }, "0 dimensions"},
		{func(a *tensorArguments) { a.address += 8 }, "0x10000000008 is no multiple of 16"},
		{func(a *tensorArguments) { a.strides[0] = 2008 }, "a stride of 2008 bytes in dimension 1"},
		{func(a *tensorArguments) { a.strides[0] = 1 << 40 }, "a stride of 1099511627776 bytes"},
		{func(a *tensorArguments) { a.sizes[1] = 0 }, "dimension 1 has 0 elements"},
		{func(a *tensorArguments) { a.box[1] = 257 }, "a box of 257 elements in dimension 1"},
		{func(a *tensorArguments) { a.box[1] = 0 }, "a box of 0 elements in dimension 1"},
		{func(a *tensorArguments) { a.box[0] = 72 }, "a box with rows of 144 bytes, more than the 128 of the swizzle"},
		{func(a *tensorArguments) { a.box[0], a.swizzle = 36, 0 }, "a box with rows of 72 bytes, no multiple of 16"},
		{func(a *tensorArguments) { a.swizzle = 4 }, "swizzle 4"},
		{func(a *tensorArguments) { a.promotion = 4 }, "L2 promotion 4"},
		{func(a *tensorArguments) { a.interleave = 1 }, "interleave 1"},
		{func(a *tensorArguments) { a.every[1] = 2 }, "every element 2 of dimension 1"},
		{func(a *tensorArguments) { a.shift = 16 }, "no multiple of 64"},
	} {
		d := emu.New(emu.Options{})
		if code := call(d.Symbol(cudart.Driver, "cuInit"), 0); code != 0 {
			t.Fatal(code)
		}
		a := good()
		c.edit(a)
		code, faults := a.encode(d.Symbol(cudart.Driver, "cuTensorMapEncodeTiled")), d.Faults()
		if c.want == "" && (code != 0 || len(faults) > 0) || c.want != "" && (code != 1 || len(faults) != 1 || !strings.Contains(faults[0].Error(), c.want)) {
			t.Errorf("code %d, %v; want %q", code, faults, c.want)
		}
		d.Close()
	}
}

// TestTensorMapsOfOldDrivers: drivers before CUDA 12.0 have no cuTensorMapEncodeTiled.
func TestTensorMapsOfOldDrivers(t *testing.T) {
	for version, there := range map[int]bool{11080: false, 12000: true} {
		d := emu.New(emu.Options{DriverVersion: version})
		if got := d.Symbol(cudart.Driver, "cuTensorMapEncodeTiled") != 0; got != there {
			t.Errorf("driver %d: %v", version, got)
		}
		d.Close()
	}
}
