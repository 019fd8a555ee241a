package kernels

import "mt/device"

// byAccess is a kernel for each compute dtype: [0] takes one element at a time,
// [1] 16 bytes at a time, where all addresses and distances are multiples of that.
// The order of sums may differ between the two, so where tensors lie modulo 16
// bytes counts as part of the shape.
type byAccess [2]perType

// forAccess names the kernels name_f32, name_bf16, name16_f32, name16_bf16.
func forAccess(module, name string) byAccess {
	return byAccess{forTypes(module, name, 0), forTypes(module, name+"16", 0)}
}

// of is the kernel for dt.
func (k *byAccess) of(wide bool, dt device.DType) *Kernel {
	if wide {
		return &k[1][dt]
	}
	return &k[0][dt]
}

// chunkOf is how many elements of dt a thread takes at a time.
func chunkOf(wide bool, dt device.DType) int {
	if wide {
		return 16 / int(dt.Size())
	}
	return 1
}

// wideAt says whether every tensor starts at a multiple of 16 bytes; none does.
func wideAt(tensors ...device.Tensor) bool {
	for _, t := range tensors {
		if t.Addr%16 != 0 {
			return false
		}
	}
	return true
}

// wideBy says whether that many elements of dt are a multiple of 16 bytes.
func wideBy(dt device.DType, extents ...int) bool {
	for _, n := range extents {
		if int64(n)*dt.Size()%16 != 0 {
			return false
		}
	}
	return true
}

// warps is the least multiple of 32 that is at least n, between 32 and most.
func warps(n, most int) int { return min(max(32, (n+31)/32*32), most) }

// line is a grid or a block of n in one dimension.
func line(n int64) Dim3 { return Dim3{X: uint32(n), Y: 1, Z: 1} }

// columnBlocks is the shape of a launch in which a block takes columns of one of
// rows rows, every thread each of them at most.
func columnBlocks(rows, columns, each, threads int) (grid, block Dim3) {
	n := warps((columns+each-1)/each, threads)
	return Dim3{uint32(rows), uint32(ceilDiv(int64(columns), int64(n*each))), 1}, line(int64(n))
}
