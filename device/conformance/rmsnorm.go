package conformance

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("RMSNorm", normCases)
	row("RMSNormBackward", normBackwardCases)
}

// normShapes are shapes of RMSNorm: rows, groups in a row, elements of a group, and how much longer than a dense row
// the distance between rows is.
var normShapes = [][4]int{{1, 1, 1, 0}, {5, 1, 7, 0}, {3, 2, 16, 5}, {40, 1, 33, 3}, {130, 3, 8, 9}, {2, 1, 300, 0}, {0, 2, 4, 0}, {2100, 1, 5, 1}}

// normCases are the cases of RMSNorm. The mean of squares is a sum of dim positive terms. An
// element of the result has the error of that sum and a few more roundings.
func normCases(add func(string, func(*rig))) {
	for _, sh := range normShapes {
		for _, form := range []string{"plain", "in place", "no rstd", "offset", "residual", "onto residual", "residual in place"} {
			add(fmt.Sprintf("%v,%s", sh, form), func(r *rig) { norm(r, sh, form) })
		}
	}
}

func norm(r *rig, sh [4]int, form string) {
	width := sh[1] * sh[2]
	n := oracle.Norm{Rows: sh[0], Groups: sh[1], Dim: sh[2], XStride: width + sh[3], YStride: width + 2*sh[3], Eps: 1e-5}
	inPlace := form == "in place" || form == "residual in place"
	if inPlace {
		n.YStride = n.XStride
	}
	x, w := r.act("X", n.Rows*n.XStride), r.f32("W", n.Dim)
	y := x
	if !inPlace {
		y = r.act("Y", n.Rows*n.YStride)
	}
	rstd := r.f32("RStd", n.Rows*n.Groups)
	a := op.RMSNorm{Y: y.t, X: x.t, W: w.t, RStd: rstd.t, Rows: n.Rows, Groups: n.Groups, Dim: n.Dim,
		XStride: n.XStride, YStride: n.YStride, Eps: 1e-5}
	var residual []float64
	switch form {
	case "onto residual":
		a.Residual, residual = y.t, y.v
	case "residual", "residual in place":
		other := r.act("Residual", n.Rows*n.YStride)
		a.Residual, residual = other.t, other.v
	}
	if form == "offset" || form == "residual" {
		n.Offset, a.Offset = 1, 1
	}
	wantY, wantR := y.copy(), rstd.copy()
	oracle.RMSNorm(wantY, wantR, x.copy(), w.v, residual, n)
	y.expect(wantY, summing(n.Dim), 1)
	if residual != nil { // a sum may be much smaller than its terms
		y.least = 1
	}
	if form == "no rstd" {
		a.RStd = device.Tensor{}
	} else {
		rstd.expect(wantR, summing(n.Dim), 0)
	}
	enqueue(r, a)
}

func normBackwardCases(add func(string, func(*rig))) {
	for _, sh := range normShapes {
		for _, form := range []string{"overwrite", "add", "in place", "offset", "offset, add", "no DW"} {
			add(fmt.Sprintf("%v,%s", sh, form), func(r *rig) { normBackward(r, sh, form) })
		}
	}
}

func normBackward(r *rig, sh [4]int, form string) {
	width := sh[1] * sh[2]
	n := oracle.Norm{Rows: sh[0], Groups: sh[1], Dim: sh[2], XBStride: width + sh[3], DYStride: width + 2*sh[3],
		DXStride: width + 3*sh[3], Add: form == "add" || form == "offset, add"}
	if form == "offset" || form == "offset, add" {
		n.Offset = 1
	}
	if form == "in place" {
		n.DXStride = n.DYStride
	}
	x, w, dy := r.act("X", n.Rows*n.XBStride), r.f32("W", n.Dim), r.act("DY", n.Rows*n.DYStride)
	dx := dy
	if form != "in place" {
		dx = r.act("DX", n.Rows*n.DXStride)
	}
	rstds := make([]float64, n.Rows*n.Groups)
	for i := range rstds {
		rstds[i] = 0.5 + r.rng.Float64()
	}
	rstd, dw := r.values("RStd", device.F32, rstds), r.f32("DW", n.Dim)
	wantX, wantW := dx.copy(), dw.copy()
	oracle.RMSNormBackward(wantX, wantW, dy.copy(), x.v, w.v, rstd.v, n)
	// In bf16, DX is rounded once: as the gradient, or as the sum if the gradient is added.
	dx.expect(wantX, 2*summing(n.Dim), 1)
	if form == "no DW" {
		dw.t = device.Tensor{}
	} else {
		dw.expect(wantW, summing(n.Rows*n.Groups), 0)
	}
	enqueue(r, op.RMSNormBackward{DX: dx.t, DW: dw.t, DY: dy.t, X: x.t, W: w.t, RStd: rstd.t,
		Rows: n.Rows, Groups: n.Groups, Dim: n.Dim, DXStride: n.DXStride, DYStride: n.DYStride, XStride: n.XBStride,
		Offset: float32(n.Offset), Add: n.Add})
}
