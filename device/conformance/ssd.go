package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("SSD", ssdCases)
	row("SSDBackward", ssdBackwardCases)
}

// someSSDs are shapes of the state space scan. cu holds the sequences' bounds; headDim and stateDim are the rows and
// columns of a head's state.
var someSSDs = []struct {
	cu                               []int32
	groups, heads, headDim, stateDim int
}{
	{[]int32{0, 1}, 1, 1, 1, 1}, {[]int32{0, 3, 3, 8}, 2, 4, 6, 5}, {[]int32{0, 64}, 1, 2, 16, 32}, {[]int32{0, 64, 70, 71, 275}, 2, 4, 16, 24},
	{[]int32{0, 129}, 1, 1, 40, 33}, {[]int32{0, 80}, 1, 2, 64, 128}, {[]int32{0, 66}, 1, 1, 72, 200}, {[]int32{0}, 1, 1, 4, 4},
}

// ssdRig holds the inputs of a case of the state space scan, for the forward and the backward.
type ssdRig struct {
	op.SSDShape
	oracle                   oracle.SSD
	xbc, dt, aLog, dtBias, d *array
}

func newSSDRig(r *rig, cu []int32, groups, heads, headDim, stateDim int, limited bool) ssdRig {
	T := int(cu[len(cu)-1])
	d := ssdRig{SSDShape: op.SSDShape{Seqs: len(cu) - 1, T: T, Groups: groups, Heads: heads, HeadDim: headDim, StateDim: stateDim, DtStride: heads + 3,
		DtMax: float32(math.Inf(1))}}
	if limited {
		d.DtMin, d.DtMax = 0.5, 1.25
	}
	d.Cu = r.i32("Cu", cu).t
	d.xbc, d.dt = r.act("XBC", T*d.Width()), r.act("Dt", T*d.DtStride)
	d.aLog, d.dtBias, d.d = r.f32("ALog", heads), r.f32("DtBias", heads), r.f32("D", heads)
	d.oracle = oracle.SSD{Cu: cu, Groups: groups, Heads: heads, HeadDim: headDim, StateDim: stateDim, DtStride: d.DtStride, DtMin: float64(d.DtMin),
		DtMax: float64(d.DtMax)}
	return d
}

// ssdBound returns the allowed error, relative to the largest value. In bf16 a device may round
// factors of its matrix products to bf16: states, and the scores times their decay.
func (r *rig) ssdBound() float64 {
	if r.dt == device.BF16 {
		return 1.0 / 128
	}
	return 512 * uF32
}

func ssdCases(add func(string, func(*rig))) {
	for _, sh := range someSSDs {
		for _, kind := range []string{"", " limited", " goes on"} {
			if kind == " goes on" && len(sh.cu) != 2 {
				continue
			}
			add(fmt.Sprintf("%v %d %d %d %d%s", sh.cu, sh.groups, sh.heads, sh.headDim, sh.stateDim, kind), func(r *rig) {
				d := newSSDRig(r, sh.cu, sh.groups, sh.heads, sh.headDim, sh.stateDim, kind == " limited")
				o, states := r.act("O", d.T*d.Heads*d.HeadDim), r.f32("States", d.StatesLen())
				a := op.SSD{SSDShape: d.SSDShape, O: o.t, XBC: d.xbc.t, Dt: d.dt.t, ALog: d.aLog.t, DtBias: d.dtBias.t, D: d.d.t, States: states.t}
				var kept *array
				var last []float64
				if kind == " goes on" {
					kept = r.f32("Last", d.Heads*d.HeadDim*d.StateDim)
					a.Last, last = kept.t, kept.copy()
				}
				want := once(fmt.Sprint("SSD", r.dt, sh, kind), func() [3][]float64 {
					y, s := o.copy(), states.copy()
					d.oracle.SSD(y, s, last, d.xbc.v, d.dt.v, d.aLog.v, d.dtBias.v, d.d.v)
					return [3][]float64{y, s, last}
				})
				o.expect(want[0], r.ssdBound(), 1)
				states.expect(want[1], r.ssdBound(), 0)
				if kept != nil {
					kept.expect(want[2], r.ssdBound(), 0)
				}
				enqueue(r, a)
			})
		}
	}
}

func ssdBackwardCases(add func(string, func(*rig))) {
	for _, sh := range someSSDs {
		for _, kind := range []string{"", " frozen", " limited"} {
			add(fmt.Sprintf("%v %d %d %d %d%s", sh.cu, sh.groups, sh.heads, sh.headDim, sh.stateDim, kind), func(r *rig) {
				d := newSSDRig(r, sh.cu, sh.groups, sh.heads, sh.headDim, sh.stateDim, kind == " limited")
				do, dxbc, ddt := r.act("DO", d.T*d.Heads*d.HeadDim), r.act("DXBC", d.T*d.Width()), r.act("DDt", d.T*d.DtStride)
				da, db, dd := r.f32("DALog", d.Heads), r.f32("DDtBias", d.Heads), r.f32("DD", d.Heads)
				inputs := fmt.Sprint(r.dt, sh, kind == " limited")
				before := once("SSD's states"+inputs, func() []float64 {
					states := make([]float64, d.StatesLen())
					d.oracle.SSD(make([]float64, len(do.v)), states, nil, d.xbc.v, d.dt.v, d.aLog.v, d.dtBias.v, d.d.v)
					return states
				})
				states, dstates := r.values("States", device.F32, before), r.f32("DStates", d.StatesLen())
				states.any, dstates.any = true, true
				a := op.SSDBackward{SSDShape: d.SSDShape, DXBC: dxbc.t, DDt: ddt.t, DALog: da.t, DDtBias: db.t, DD: dd.t, DStates: dstates.t,
					DO: do.t, XBC: d.xbc.t, Dt: d.dt.t, ALog: d.aLog.t, DtBias: d.dtBias.t, D: d.d.t, States: states.t}
				want := once("SSDBackward"+inputs, func() [5][]float64 {
					x, s, a, b, c := dxbc.copy(), ddt.copy(), da.copy(), db.copy(), dd.copy()
					d.oracle.SSDBackward(x, s, a, b, c, do.v, d.xbc.v, d.dt.v, d.aLog.v, d.dtBias.v, d.d.v)
					return [5][]float64{x, s, a, b, c}
				})
				bound := 2 * r.ssdBound()
				if kind == " frozen" {
					a.DALog, a.DDtBias, a.DD = device.Tensor{}, device.Tensor{}, device.Tensor{}
				} else {
					da.expect(want[2], 4*bound, 0) // sums over all tokens of sums of differences
					db.expect(want[3], 4*bound, 0)
					dd.expect(want[4], bound, 0)
				}
				dxbc.expect(want[0], bound, 1)
				ddt.expect(want[1], bound, 1)
				enqueue(r, a)
			})
		}
	}
}
