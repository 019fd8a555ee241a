package conformance

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("ShortConv", shortConvCases)
	row("ShortConvBackward", shortConvBackwardCases)
	row("GatedDelta", gatedDeltaCases)
	row("GatedDeltaBackward", gatedDeltaBackwardCases)
}

// someConvs are shapes of convolutions. cu holds the sequences' bounds. more is the padding at the end of a row.
var someConvs = []struct {
	cu                   []int32
	channels, taps, more int
}{
	{[]int32{0, 1}, 1, 4, 0}, {[]int32{0, 2, 3, 3, 9}, 5, 4, 3}, {[]int32{0, 70, 131}, 64, 4, 24}, {[]int32{0, 33}, 40, 3, 0}, {[]int32{0, 5}, 3, 1, 2},
	{[]int32{0, 2100}, 16, 2, 8}, {[]int32{0}, 4, 4, 0},
}

// convForms are the variants of ShortConv: SiLU or a gate follows the convolution, each without and
// with a bias.
var convForms = []struct {
	name        string
	gated, bias bool
}{{"", false, false}, {" biased", false, true}, {" gated", true, false}, {" gated biased", true, true}}

// shortConvCases are the cases of ShortConv. A result is a sum of few products, followed by SiLU or
// one more product, so the allowed error is a few roundings. Cases that go on continue a sequence
// from a tail.
func shortConvCases(add func(string, func(*rig))) {
	for _, sh := range someConvs {
		C, T := sh.channels, int(sh.cu[len(sh.cu)-1])
		for _, form := range convForms {
			for _, goesOn := range []bool{false, true} {
				if goesOn && len(sh.cu) != 2 {
					continue
				}
				add(fmt.Sprintf("%v %d %d%s goes on %v", sh.cu, C, sh.taps, form.name, goesOn), func(r *rig) {
					width := op.ConvWidth(C, form.gated)
					y, x, w, cu := r.act("Y", T*C), r.act("X", T*(width+sh.more)), r.f32("W", C*sh.taps), r.i32("Cu", sh.cu)
					a := op.ShortConv{Y: y.t, X: x.t, W: w.t, Cu: cu.t, Seqs: len(sh.cu) - 1, T: T, C: C, Taps: sh.taps, XStride: width + sh.more, Gated: form.gated}
					o := oracle.Conv{Cu: sh.cu, W: w.v, Channels: C, Taps: sh.taps, Stride: a.XStride, Gated: form.gated}
					if form.bias {
						bias := r.f32("Bias", C)
						a.Bias, o.Bias = bias.t, bias.v
					}
					var before []float64
					if goesOn {
						tail := r.act("Tail", (sh.taps-1)*width)
						a.Tail, before = tail.t, tail.v
						tail.expect(tailOf(tail.v, x.v, T, width, sh.taps, a.XStride), 0, 0)
						tail.bound = uF32 // nothing is computed
					}
					want := y.copy()
					o.ShortConv(want, x.v, before)
					y.expect(want, 16*uF32, 1)
					if form.bias {
						y.least = 1 // the only element of a case may be a small rest of the bias and a product
					}
					enqueue(r, a)
				})
			}
		}
	}
}

// tailOf returns the tail that a call with input x must leave: the last taps−1 rows of the old tail
// followed by x.
func tailOf(tail, x []float64, T, C, taps, stride int) []float64 {
	all := append([]float64(nil), tail...)
	for t := range T {
		all = append(all, x[t*stride:][:C]...)
	}
	return all[len(all)-(taps-1)*C:]
}

func shortConvBackwardCases(add func(string, func(*rig))) {
	for _, sh := range someConvs {
		C, T := sh.channels, int(sh.cu[len(sh.cu)-1])
		for _, form := range convForms {
			for _, frozen := range []bool{false, true} {
				add(fmt.Sprintf("%v %d %d%s frozen %v", sh.cu, C, sh.taps, form.name, frozen), func(r *rig) {
					width := op.ConvWidth(C, form.gated)
					stride, dStride := width+sh.more, width+2*sh.more
					dx, dw, dy := r.act("DX", T*dStride), r.f32("DW", C*sh.taps), r.act("DY", T*C)
					x, w, cu := r.act("X", T*stride), r.f32("W", C*sh.taps), r.i32("Cu", sh.cu)
					a := op.ShortConvBackward{DX: dx.t, DW: dw.t, DY: dy.t, X: x.t, W: w.t, Cu: cu.t, Seqs: len(sh.cu) - 1, T: T, C: C, Taps: sh.taps,
						XStride: stride, DXStride: dStride, Gated: form.gated}
					o := oracle.Conv{Cu: sh.cu, W: w.v, Channels: C, Taps: sh.taps, Stride: stride, Gated: form.gated}
					wantX, wantW := dx.copy(), dw.copy()
					var db *array
					var wantB []float64
					if form.bias {
						bias := r.f32("Bias", C)
						db = r.f32("DBias", C)
						a.Bias, a.DBias, o.Bias, wantB = bias.t, db.t, bias.v, db.copy()
					}
					if frozen {
						a.DW, wantW = device.Tensor{}, nil
					}
					o.ShortConvBackward(wantX, wantW, wantB, dy.v, x.v, dStride)
					if !frozen {
						dw.expect(wantW, 2*summing(T), 0)
					}
					if db != nil {
						db.expect(wantB, 2*summing(T), 0)
					}
					dx.expect(wantX, 32*uF32, 1)
					if form.bias {
						dx.least = 1 // SiLU's slope at such a rest
					}
					enqueue(r, a)
				})
			}
		}
	}
}

// someDeltas are shapes of the gated delta rule. cu holds the sequences' bounds; keyDim and valueDim are elements of
// one head.
var someDeltas = []deltaCase{
	{[]int32{0, 1}, 1, 1, 1, 1}, {[]int32{0, 3, 3, 8}, 2, 4, 6, 5}, {[]int32{0, 64}, 1, 2, 16, 32}, {[]int32{0, 70, 71, 275}, 2, 4, 16, 24},
	{[]int32{0, 129}, 1, 1, 40, 33}, {[]int32{0, 80}, 1, 2, 128, 128}, {[]int32{0}, 1, 1, 4, 4}, {[]int32{0, 66}, 1, 2, 72, 9},
	{[]int32{0, 5, 70}, 1, 2, 9, 72},
}

// someByChannel are shapes with a decay for each channel, where keyHeads equals heads.
var someByChannel = []deltaCase{
	{[]int32{0, 1}, 1, 1, 1, 1}, {[]int32{0, 3, 3, 8}, 2, 2, 6, 5}, {[]int32{0, 70, 71, 275}, 3, 3, 16, 24}, {[]int32{0, 129}, 1, 1, 40, 33},
	{[]int32{0, 80}, 1, 1, 128, 128}, {[]int32{0}, 1, 1, 4, 4}, {[]int32{0, 66}, 2, 2, 72, 9}, {[]int32{0, 5, 70}, 2, 2, 9, 72},
}

type deltaCase struct {
	cu                                []int32
	keyHeads, heads, keyDim, valueDim int
}

// deltaRig holds the arrays that a case of the gated delta rule reads, in the forward and in the backward.
type deltaRig struct {
	op.DeltaShape
	oracle                   oracle.Delta
	qkv, gates, aLog, dtBias *array
	a                        *array // nil without ByChannel
}

func (d *deltaRig) rates() device.Tensor {
	if d.a == nil {
		return device.Tensor{}
	}
	return d.a.t
}

func newDeltaRig(r *rig, sh deltaCase, byChannel bool) deltaRig {
	cu, keyHeads, heads, keyDim, valueDim := sh.cu, sh.keyHeads, sh.heads, sh.keyDim, sh.valueDim
	T := int(cu[len(cu)-1])
	d := deltaRig{DeltaShape: op.DeltaShape{Seqs: len(cu) - 1, T: T, KeyHeads: keyHeads, Heads: heads, KeyDim: keyDim, ValueDim: valueDim, GateStride: 2*heads + 3,
		ByChannel: byChannel}}
	d.Cu = r.i32("Cu", cu).t
	d.qkv, d.gates = r.act("QKV", T*d.Width()), r.act("Gates", T*d.GateStride)
	d.aLog, d.dtBias = r.values("ALog", device.F32, scaled(r.normal(heads), 2)), r.f32("DtBias", d.Decays())
	d.oracle = oracle.Delta{Cu: cu, KeyHeads: keyHeads, Heads: heads, KeyDim: keyDim, ValueDim: valueDim, GateStride: d.GateStride, ByChannel: byChannel}
	if byChannel {
		d.a = r.act("A", T*d.Decays())
		d.oracle.A = d.a.v
	}
	return d
}

// deltaRoundings bounds errors of GPUs in bf16, in units of uBF16 of the output's largest element, without the rounding of
// the output itself. Their kernels round the factors of products to bf16: states, the system's inverse, new values and
// scores, and gradients of these. Each rounding adds up to 0.9 to an element and independently 0.05 to 0.1 to the root of
// the mean square. The numbers are those of fp64 with these roundings (TestDeltaRoundings), and a tenth.
var deltaRoundings = map[string]float64{"O": 2, "States": 1.5, "Last": 1.36, "DQKV": 1.7, "DGates": 3.6, "DALog": 1.5, "DDtBias": 1.6,
	"O by channel": 2, "States by channel": 1.9, "Last by channel": 1.5,
	"DQKV by channel": 1.6, "DGates by channel": 2.6, "DALog by channel": 2.6, "DDtBias by channel": 2.63, "DA by channel": 2.76}

// expect sets the expected content of a, an output. computing is the allowed error of the computation in fp32, relative
// to the largest element. It comes from norms, gates, and sums over a chunk and over a state. Solving the chunk's linear
// system makes errors hardly larger, because keys have length 1 and β is below 1.
func (d *deltaRig) expect(r *rig, a *array, want []float64, computing float64) {
	if r.dt == device.BF16 && r.dev.Kind() == "cuda" {
		computing = max(computing, deltaRoundings[a.name+map[bool]string{true: " by channel"}[d.ByChannel]]*uBF16)
	}
	a.expect(want, computing, 1)
}

// gatedDeltaCases are the cases of GatedDelta.
func gatedDeltaCases(add func(string, func(*rig))) {
	deltaForms(func(sh deltaCase, form string) {
		for _, kind := range []string{"", " keeps states", " goes on"} {
			if kind == " goes on" && len(sh.cu) != 2 {
				continue
			}
			add(sh.name(form+kind), func(r *rig) {
				d := newDeltaRig(r, sh, form != "")
				o := r.act("O", d.T*d.Heads*d.ValueDim)
				a := op.GatedDelta{DeltaShape: d.DeltaShape, O: o.t, QKV: d.qkv.t, Gates: d.gates.t, A: d.rates(), ALog: d.aLog.t, DtBias: d.dtBias.t}
				var kept *array
				var states, last []float64
				switch kind {
				case " keeps states":
					kept = r.values("States", device.F32, scaled(r.normal(d.StatesLen()), 1e-3)) // what is not written does not exceed states
					a.States, states = kept.t, kept.copy()
				case " goes on":
					kept = r.f32("Last", d.Heads*d.KeyDim*d.ValueDim)
					a.Last, last = kept.t, kept.copy()
				}
				want := once(fmt.Sprint("GatedDelta", r.dt, sh, form, kind), func() [2][]float64 {
					y := o.copy()
					d.oracle.GatedDelta(y, states, last, d.qkv.v, d.gates.v, d.aLog.v, d.dtBias.v)
					return [2][]float64{y, append(states, last...)}
				})
				const bound = 256 * uF32
				d.expect(r, o, want[0], bound)
				if kept != nil {
					d.expect(r, kept, want[1], bound)
				}
				enqueue(r, a)
			})
		}
	})
}

// deltaForms calls f for every shape and form of the gated delta rule.
func deltaForms(f func(sh deltaCase, form string)) {
	for _, sh := range someDeltas {
		f(sh, "")
	}
	for _, sh := range someByChannel {
		f(sh, " by channel")
	}
}

func (sh deltaCase) name(kind string) string {
	return fmt.Sprintf("%v %d %d %d %d%s", sh.cu, sh.keyHeads, sh.heads, sh.keyDim, sh.valueDim, kind)
}

// forget sets ALog and DtBias so large that a token's state decays to 1e-6 or less before the next token. The gradients
// of ALog and DtBias are then as small. A device computes them as differences of large numbers, which must cancel
// exactly.
func (d *deltaRig) forget(r *rig) {
	d.aLog, d.dtBias = r.values("ALog", device.F32, filled(d.Heads, 1.2)), r.values("DtBias", device.F32, filled(d.Decays(), 8))
}

func filled(n int, x float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = x
	}
	return v
}

func gatedDeltaBackwardCases(add func(string, func(*rig))) {
	deltaForms(func(sh deltaCase, form string) {
		for _, kind := range []string{"", " frozen", " forgets"} {
			add(sh.name(form+kind), func(r *rig) {
				d := newDeltaRig(r, sh, form != "")
				do, dqkv := r.act("DO", d.T*d.Heads*d.ValueDim), r.act("DQKV", d.T*d.Width())
				dgates := r.values("DGates", r.dt, scaled(r.normal(d.T*d.GateStride), 1e-3)) // padding does not exceed gradients
				da, dt := r.f32("DALog", d.Heads), r.f32("DDtBias", d.Decays())
				if kind == " forgets" {
					d.forget(r)
					da, dt = r.values("DALog", device.F32, make([]float64, d.Heads)), r.values("DDtBias", device.F32, make([]float64, d.Decays()))
				}
				inputs := fmt.Sprint(r.dt, sh, form, kind == " forgets")
				before := once("GatedDelta's states"+inputs, func() []float64 {
					states := make([]float64, d.StatesLen())
					d.oracle.GatedDelta(make([]float64, len(do.v)), states, nil, d.qkv.v, d.gates.v, d.aLog.v, d.dtBias.v)
					return states
				})
				states := r.values("States", device.F32, before)
				states.any = true
				a := op.GatedDeltaBackward{DeltaShape: d.DeltaShape, DQKV: dqkv.t, DGates: dgates.t, DALog: da.t, DDtBias: dt.t,
					DO: do.t, QKV: d.qkv.t, Gates: d.gates.t, A: d.rates(), ALog: d.aLog.t, DtBias: d.dtBias.t, States: states.t}
				want := once("GatedDeltaBackward"+inputs, func() [5][]float64 {
					d.oracle.DA = make([]float64, d.T*d.Decays())
					x, g, a, b := dqkv.copy(), dgates.copy(), da.copy(), dt.copy()
					d.oracle.GatedDeltaBackward(x, g, a, b, do.v, d.qkv.v, d.gates.v, d.aLog.v, d.dtBias.v)
					return [5][]float64{x, g, a, b, d.oracle.DA}
				})
				const bound = 1024 * uF32
				if kind == " frozen" {
					a.DALog, a.DDtBias = device.Tensor{}, device.Tensor{}
				} else {
					d.expect(r, da, want[2], 4*bound) // sums over all tokens of sums of differences
					d.expect(r, dt, want[3], 4*bound)
				}
				d.expect(r, dqkv, want[0], bound)
				d.expect(r, dgates, want[1], bound)
				if d.a != nil {
					rates := r.act("DA", d.T*d.Decays())
					d.expect(r, rates, want[4], bound)
					a.DA = rates.t
				}
				enqueue(r, a)
			})
		}
	})
}
