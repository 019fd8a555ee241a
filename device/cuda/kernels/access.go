package kernels

import "mt/device"

// byAccess has a kernel for each compute dtype, in two forms. Form [0] accesses one element at a
// time. Form [1] accesses 16 bytes at a time, and needs all addresses and row lengths to be
// multiples of 16 bytes. The forms may add in different orders, so the alignment of a tensor may
// change the last bits of a result.
type byAccess [2]perType

// forAccess returns the kernels of a module for both types and both forms: name_f32 and name_bf16, and name16_f32 and
// name16_bf16 for 16 bytes at a time.
func forAccess(module, name string) byAccess {
	return byAccess{forTypes(module, name, 0), forTypes(module, name+"16", 0)}
}

// of returns the kernel for dt. wide selects the form that accesses 16 bytes at a time.
func (k *byAccess) of(wide bool, dt device.DType) *Kernel {
	if wide {
		return &k[1][dt]
	}
	return &k[0][dt]
}

// chunkOf returns how many elements of dt a thread accesses at a time: those that fill 16 bytes if
// the kernel is wide, else one.
func chunkOf(wide bool, dt device.DType) int {
	if wide {
		return 16 / int(dt.Size())
	}
	return 1
}

// wideAt reports whether every tensor starts at a multiple of 16 bytes. The zero Tensor, for an absent argument, counts
// as aligned.
func wideAt(tensors ...device.Tensor) bool {
	for _, t := range tensors {
		if t.Addr%16 != 0 {
			return false
		}
	}
	return true
}

// wideBy reports whether each of the extents, which count elements of dt, is a multiple of 16 bytes.
func wideBy(dt device.DType, extents ...int) bool {
	for _, n := range extents {
		if int64(n)*dt.Size()%16 != 0 {
			return false
		}
	}
	return true
}

// warps returns a size of a thread block: n rounded up to whole warps of 32, but at least 32 and at
// most most threads.
func warps(n, most int) int { return min(max(32, (n+31)/32*32), most) }

// line returns the Dim3 of a one-dimensional grid of n blocks, or of a thread block of n threads.
func line(n int64) Dim3 { return Dim3{X: uint32(n), Y: 1, Z: 1} }

// columnBlocks returns the grid and the thread block of a launch over a table of rows by columns. A
// thread block has at most threads threads and works on columns of one row. Each thread works on at
// most each columns.
func columnBlocks(rows, columns, each, threads int) (grid, block Dim3) {
	n := warps((columns+each-1)/each, threads)
	return Dim3{uint32(rows), uint32(ceilDiv(int64(columns), int64(n*each))), 1}, line(int64(n))
}
