package kernels

import "mt/device"

var (
	gatherWide  = Kernel{Module: "rows", Name: "gather_rows16"}
	gatherRows  = forTypes("rows", "gather_rows", 0)
	scatterRows = forAccess("rows", "scatter_add_rows")
	addRows     = forAccess("rows", "add_rows")
)

// GatherRows launches Ops.GatherRows; src holds as many rows as it is long for.
func GatherRows(l Launcher, dst, src, index device.Tensor, T, C int) {
	if T == 0 || C == 0 {
		return
	}
	k, units := &gatherRows[dst.DType], C
	if wideAt(dst, src) && wideBy(dst.DType, C) {
		k, units = &gatherWide, C/chunkOf(true, dst.DType)
	}
	grid, block := columnBlocks(T, units, 4, 128)
	p := new(Params).Tensor(dst).Tensor(src).Tensor(index).I32(int(src.Len / int64(C))).I32(units)
	l.Launch(k, grid, block, 0, p)
}

// ScatterAddRows launches Ops.ScatterAddRows.
func ScatterAddRows(l Launcher, drows, dy, start, pos device.Tensor, U, T, C int) {
	const threads = 128
	if U == 0 || T == 0 || C == 0 {
		return
	}
	wide := wideAt(drows, dy) && wideBy(dy.DType, C)
	grid := Dim3{uint32(U), uint32(ceilDiv(int64(C), int64(threads*chunkOf(wide, dy.DType)))), 1}
	p := new(Params).Tensor(drows).Tensor(dy).Tensor(start).Tensor(pos).I32(T).I32(C)
	l.Launch(scatterRows.of(wide, dy.DType), grid, line(threads), 0, p)
}

// AddRows launches Ops.AddRows. An index that dst does not have adds nothing.
func AddRows(l Launcher, dst, src, index device.Tensor, U, T, C int) {
	if T == 0 || C == 0 {
		return
	}
	wide := wideAt(dst, src) && wideBy(src.DType, C)
	grid, block := columnBlocks(T, C, 16, 128)
	p := new(Params).Tensor(dst).Tensor(src).Tensor(index).I32(U).I32(C)
	l.Launch(addRows.of(wide, src.DType), grid, block, 0, p)
}
