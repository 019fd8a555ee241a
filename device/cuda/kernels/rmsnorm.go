package kernels

import "mt/device/op"

func init() {
	add(RMSNorm)
	add(RMSNormBackward)
}

// The three ways to normalize a group; see rmsnorm.cuh. Some lanes of a warp (team) or a block
// (rows) hold it in registers, or a block reads it twice (wide).
var (
	normTeam = forAccess("rmsnorm", "rmsnorm_team")
	normRows = forAccess("rmsnorm", "rmsnorm_rows")
	normWide = forAccess("rmsnorm", "rmsnorm_wide")

	normBackwardTeam   = forAccess("rmsnorm_backward", "rmsnorm_backward_team")
	normBackwardRows   = forAccess("rmsnorm_backward", "rmsnorm_backward_rows")
	normBackwardWide   = forAccess("rmsnorm_backward", "rmsnorm_backward_wide")
	normBackwardWideDW = forAccess("rmsnorm_backward", "rmsnorm_backward_wide_dw")
)

const (
	teamThreads = 256 // threads of a block that consists of teams
	teamElems   = 8   // elements of a group that a lane of a team holds
	rowThreads  = 512 // most threads of a block that computes whole groups
)

// teamFor returns how many lanes (threads of a warp) hold a group of dim elements in registers; 0:
// a warp has too few.
func teamFor(dim int) int {
	lanes := 1
	for lanes*teamElems < dim {
		lanes *= 2
	}
	if lanes > 32 {
		return 0
	}
	return lanes
}

// rowElems returns how many elements of a row a thread holds if a whole thread block normalizes the
// row.
func rowElems(wide bool) int {
	if wide {
		return 16
	}
	return 8
}

// threadsFor returns how many threads of a block hold a row of dim elements in registers; 0: a
// block has too few.
func threadsFor(dim int, wide bool) int {
	if dim > rowThreads*rowElems(wide) {
		return 0
	}
	return warps((dim+rowElems(wide)-1)/rowElems(wide), rowThreads)
}

// RMSNorm launches op.RMSNorm.
func RMSNorm(l Launcher, a *op.RMSNorm) {
	const teamGroups = 2 // groups that a team computes
	if a.Rows == 0 || a.Groups == 0 || a.Dim == 0 {
		return
	}
	dt, count := a.X.DType, int64(a.Rows)*int64(a.Groups)
	wide := wideAt(a.X, a.Y, a.W, a.Residual) && wideBy(dt, a.XStride, a.YStride, a.Dim)
	p := l.Params().Tensor(a.Y).Tensor(a.RStd).Tensor(a.X).Tensor(a.W).Tensor(a.Residual)
	p.I64(int64(a.XStride)).I64(int64(a.YStride))
	team, threads := teamFor(a.Dim), threadsFor(a.Dim, wide)
	switch {
	case team > 0:
		p.I32(int(count)).I32(a.Groups).I32(a.Dim).F32(a.Eps).F32(a.Offset).I32(team)
		l.Launch(normTeam.of(wide, dt), line(ceilDiv(count, int64(teamThreads/team*teamGroups))), line(teamThreads), 0, p)
	case threads > 0:
		each := min(max(count/1024, 1), 4) // up to four groups share a block's read of W
		p.I32(int(count)).I32(a.Groups).I32(a.Dim).F32(a.Eps).F32(a.Offset).I32(int(each))
		l.Launch(normRows.of(wide, dt), line(ceilDiv(count, each)), line(int64(threads)), 0, p)
	default:
		p.I32(a.Groups).I32(a.Dim).F32(a.Eps).F32(a.Offset)
		l.Launch(normWide.of(wide, dt), line(count), line(rowThreads), 0, p)
	}
}

// RMSNormBackward launches op.RMSNormBackward: first DX and, for DW, sums over slices of the rows,
// then DW from these.
func RMSNormBackward(l Launcher, a *op.RMSNormBackward) {
	if a.Rows == 0 || a.Groups == 0 || a.Dim == 0 {
		return
	}
	dt, count, dim := a.X.DType, int64(a.Rows)*int64(a.Groups), int64(a.Dim)
	wide := wideAt(a.X, a.DX, a.DY, a.W) && wideBy(dt, a.XStride, a.DXStride, a.DYStride, a.Dim)
	team, threads := teamFor(a.Dim), threadsFor(a.Dim, wide)
	if team == 0 && threads == 0 {
		normBackwardOfWide(l, a, wide)
		return
	}
	// most limits the number of slices. 2²¹ partial sums, at 16 a thread, keep 2¹⁷ threads busy,
	// which fill a large GPU once.
	least, most := int64(8), max(1, 1<<21/dim)
	k := normBackwardRows.of(wide, dt)
	if team > 0 {
		teams := int64(teamThreads / team)
		// A slice has a multiple of the block's teams (groups of lanes that share a norm), and at
		// least four norms for each team.
		least = ceilDiv(max(4*teams, ceilDiv(count, 1024)), teams) * teams
		most, k, threads = count, normBackwardTeam.of(wide, dt), teamThreads
	}
	part, slices, each := slicesOf(l, count, dim, least, most)
	p := l.Params().Tensor(a.DX).Tensor(part).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.RStd)
	p.I64(int64(a.DXStride)).I64(int64(a.DYStride)).I64(int64(a.XStride)).I32(int(count)).I32(a.Groups).I32(a.Dim).Bool(a.Add).F32(a.Offset).I32(each)
	if team > 0 {
		p.I32(team)
	}
	l.Launch(k, line(int64(slices)), line(int64(threads)), 0, p)
	addUp(l, a.DW, part, slices, a.Dim)
}

// normBackwardOfWide launches the backward for groups that do not fit in a block's registers. It
// computes DW before DX, because DX may overwrite DY.
func normBackwardOfWide(l Launcher, a *op.RMSNormBackward, wide bool) {
	dt, count, dim := a.X.DType, int64(a.Rows)*int64(a.Groups), int64(a.Dim)
	if !a.DW.None() {
		most := max(1, min(64, ScratchBytes/4/dim))
		part, slices, each := slicesOf(l, count, dim, 8, most)
		p := l.Params().Tensor(part).Tensor(a.DY).Tensor(a.X).Tensor(a.RStd)
		p.I64(int64(a.DYStride)).I64(int64(a.XStride)).I32(int(count)).I32(a.Groups).I32(a.Dim).I32(each)
		columns := ceilDiv(dim, int64(rowThreads*chunkOf(wide, dt)))
		l.Launch(normBackwardWideDW.of(wide, dt), Dim3{uint32(columns), uint32(slices), 1}, line(rowThreads), 0, p)
		addUp(l, a.DW, part, slices, a.Dim)
	}
	p := l.Params().Tensor(a.DX).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.RStd)
	p.I64(int64(a.DXStride)).I64(int64(a.DYStride)).I64(int64(a.XStride)).I32(a.Groups).I32(a.Dim).Bool(a.Add).F32(a.Offset)
	l.Launch(normBackwardWide.of(wide, dt), line(count), line(rowThreads), 0, p)
}
