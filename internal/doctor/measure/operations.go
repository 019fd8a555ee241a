package measure

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"mt/device"
	"mt/device/op"
)

// Operation is an operation to measure whose time depends on memory traffic, such as a norm.
type Operation struct {
	Name  string // as in device.Op; see Operations
	Rows  int    // tokens
	Cols  int    // elements per row: of a hidden state, a vocabulary, or a number of experts
	DType device.DType
}

func (o Operation) String() string {
	return fmt.Sprintf("%s of %d × %d %s", o.Name, o.Rows, o.Cols, o.DType)
}

// Elements returns Rows·Cols.
func (o Operation) Elements() float64 { return float64(o.Rows) * float64(o.Cols) }

// build makes one kind of operation for a measurement. It requests the operands from a memory.
// After the allocation the caller calls the returned function. That function enqueues the operation
// and returns an op.Mover, which counts bytes.
type build func(o Operation, a *memory) func(d device.Device, s device.Stream) op.Mover

// enqueue returns a function that enqueues the operation o and returns o as an op.Mover, which counts the bytes that o
// reads and writes.
func enqueue[O any, P interface {
	*O
	op.Mover
}](o *O) func(device.Device, device.Stream) op.Mover {
	return func(d device.Device, s device.Stream) op.Mover {
		op.Do[O, P](d, s, *o)
		return P(o)
	}
}

// Operations returns the names that Meter.Operation accepts: all operations except matrix products and attention.
func Operations() []string { return slices.Sorted(maps.Keys(builds)) }

// headDim is the head dimension with which RoPE and other operations of heads are measured, unless Cols is smaller.
const headDim = 128

// chosen is the number of experts that a measured router selects per token, unless there are fewer experts.
const chosen = 8

// permuted returns a function that maps 0 to n−1 to a fixed permutation of these numbers, for row indices that are not
// in order.
func permuted(n int) func(i int) float64 {
	step := 1
	for _, p := range []int{7919, 104729, 3} { // primes
		if n%p != 0 {
			step = p
			break
		}
	}
	return func(i int) float64 { return float64(i * step % n) }
}

// shortTaps is the number of filter taps of a short convolution.
const shortTaps = 4

func ones(int) float64 { return 1 }

func counting(i int) float64 { return float64(i) }

// deltaShape returns the shape of a measured gated delta rule: one sequence with heads of dimension headDim and one
// key head per head.
func deltaShape(o Operation) op.DeltaShape {
	dim := min(headDim, o.Cols)
	heads := min(op.MostDeltaHeads, o.Cols/dim)
	return op.DeltaShape{Seqs: 1, T: o.Rows, KeyHeads: heads, Heads: heads, KeyDim: dim, ValueDim: dim, GateStride: 2 * heads}
}

// ssdShape returns the shape of a measured state-space scan (Mamba-2) over rows with o.Cols columns. Its other sizes
// are as in published models.
func ssdShape(o Operation) op.SSDShape {
	dim := min(64, o.Cols)
	return op.SSDShape{Seqs: 1, T: o.Rows, Groups: 1, Heads: o.Cols / dim, HeadDim: dim, StateDim: 128, DtStride: o.Cols / dim, DtMax: 1}
}

// wantSSD requests the operands that the state-space scan and its backward share.
func (a *memory) wantSSD(o Operation, x *op.SSDShape, xbc, dt, aLog, dtBias, d, states *device.Tensor) {
	a.want(o.DType, o.Rows*x.Width(), xbc)
	a.want(o.DType, o.Rows*x.DtStride, dt)
	a.want(device.F32, x.Heads, aLog, dtBias, d)
	a.want(device.F32, x.StatesLen(), states)
	a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
}

// builds has a build function for every operation, by name. Values stay finite when an operation is repeated: in-place
// operations use a factor of 1.
var builds = map[string]build{
	"AddBiasGrad": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.AddBiasGrad{T: o.Rows, N: o.Cols}
		a.want(device.F32, o.Cols, &x.DB)
		a.want(o.DType, o.Rows*o.Cols, &x.DY)
		return enqueue(x)
	},
	"AddNoise": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.AddNoise{T: o.Rows, C: o.Cols, Seqs: 1, Step: 1, Scale: 1}
		a.want(o.DType, o.Rows*o.Cols, &x.X)
		a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
		return enqueue(x)
	},
	"AddRows": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.AddRows{U: o.Rows, T: o.Rows, C: o.Cols}
		a.want(device.F32, o.Rows*o.Cols, &x.Dst)
		a.want(o.DType, o.Rows*o.Cols, &x.Src)
		a.filled(&x.Index, device.I32, o.Rows, permuted(o.Rows))
		return enqueue(x)
	},
	"Convert": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.Convert{N: int64(o.Rows) * int64(o.Cols)}
		a.want(o.DType, o.Rows*o.Cols, &x.Dst)
		a.want(device.F32, o.Rows*o.Cols, &x.Src)
		return enqueue(x)
	},
	"CrossEntropy": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.CrossEntropy{T: o.Rows, V: o.Cols, Scale: 1}
		a.want(o.DType, o.Rows*o.Cols, &x.Logits)
		a.filled(&x.Targets, device.I32, o.Rows, func(i int) float64 { return float64(i % o.Cols) })
		a.want(device.F32, o.Rows, &x.Losses)
		return enqueue(x)
	},
	"CrossEntropyShard": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.CrossEntropyShard{T: o.Rows, V: o.Cols, Scale: 1, First: true, Last: true}
		a.want(o.DType, o.Rows*o.Cols, &x.Logits)
		a.filled(&x.Targets, device.I32, o.Rows, func(i int) float64 { return float64(i % o.Cols) })
		a.want(device.F32, o.Rows, &x.LSE, &x.Losses)
		return enqueue(x)
	},
	"PreferenceWeights": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.PreferenceWeights{T: 2 * o.Rows, Pairs: o.Rows, Loss: op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}}
		a.want(device.F32, x.T, &x.Weights, &x.Losses)
		a.filled(&x.Targets, device.I32, x.T, ones)
		a.filled(&x.Cu, device.I32, x.T+1, counting)
		a.want(device.F32, x.T, &x.Reference)
		return enqueue(x)
	},
	"CopyColumns": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.CopyColumns{T: o.Rows, C: o.Cols, DstStride: o.Cols, SrcStride: 2 * o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Dst)
		a.want(o.DType, 2*o.Rows*o.Cols, &x.Src)
		return enqueue(x)
	},
	"CopyHeads": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		dim := min(headDim, o.Cols)
		x := &op.CopyHeads{T: o.Rows, Heads: o.Cols / dim, C: dim, DstStride: o.Cols, DstHead: dim, SrcStride: 2 * o.Cols, SrcHead: 2 * dim}
		a.want(o.DType, o.Rows*o.Cols, &x.Dst)
		a.want(o.DType, 2*o.Rows*o.Cols, &x.Src)
		return enqueue(x)
	},
	"GatedDelta": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.GatedDelta{DeltaShape: deltaShape(o)} // a column is an element of a value
		a.want(o.DType, o.Rows*o.Cols, &x.O)
		a.want(o.DType, o.Rows*x.Width(), &x.QKV)
		a.want(o.DType, o.Rows*x.GateStride, &x.Gates)
		a.want(device.F32, x.Heads, &x.ALog, &x.DtBias)
		a.want(device.F32, x.StatesLen(), &x.States)
		a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
		return enqueue(x)
	},
	"GatedDeltaBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.GatedDeltaBackward{DeltaShape: deltaShape(o)}
		a.want(o.DType, o.Rows*o.Cols, &x.DO)
		a.want(o.DType, o.Rows*x.Width(), &x.QKV, &x.DQKV)
		a.want(o.DType, o.Rows*x.GateStride, &x.Gates, &x.DGates)
		a.want(device.F32, x.Heads, &x.ALog, &x.DtBias, &x.DALog, &x.DDtBias)
		a.want(device.F32, x.StatesLen(), &x.States)
		a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
		return enqueue(x)
	},
	"GatherRows": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.GatherRows{T: o.Rows, C: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Dst, &x.Src)
		a.filled(&x.Index, device.I32, o.Rows, permuted(o.Rows))
		return enqueue(x)
	},
	"GLU": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.GLU{T: o.Rows, F: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Y)
		a.want(o.DType, 2*o.Rows*o.Cols, &x.GU)
		return enqueue(x)
	},
	"GLUBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.GLUBackward{T: o.Rows, F: o.Cols}
		a.want(o.DType, 2*o.Rows*o.Cols, &x.DGU)
		a.want(o.DType, o.Rows*o.Cols, &x.DY)
		a.want(o.DType, 2*o.Rows*o.Cols, &x.GU)
		return enqueue(x)
	},
	"Activate": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.Activate{Activation: op.GELU, T: o.Rows, F: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Y, &x.X)
		return enqueue(x)
	},
	"ActivateBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.ActivateBackward{Activation: op.GELU, T: o.Rows, F: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.X, &x.DX, &x.DY)
		return enqueue(x)
	},
	"XIELU": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.XIELU{T: o.Rows, F: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Y, &x.X)
		a.want(device.F32, 2, &x.Alpha)
		return enqueue(x)
	},
	"XIELUBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.XIELUBackward{T: o.Rows, F: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.X, &x.DX, &x.DY, &x.Y)
		a.want(device.F32, 2, &x.Alpha, &x.DAlpha)
		return enqueue(x)
	},
	"AddPositions": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.AddPositions{T: o.Rows, C: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Y, &x.X, &x.Table)
		a.filled(&x.Pos, device.I32, o.Rows, counting)
		return enqueue(x)
	},
	"AddPositionsBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.AddPositionsBackward{Seqs: 1, Longest: o.Rows, T: o.Rows, C: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.DY)
		a.want(device.F32, o.Rows*o.Cols, &x.DTable)
		a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
		return enqueue(x)
	},
	"LayerNorm": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.LayerNorm{Rows: o.Rows, Dim: o.Cols, Eps: 1e-5}
		a.want(o.DType, o.Rows*o.Cols, &x.X, &x.Y)
		a.want(device.F32, o.Cols, &x.W, &x.B)
		a.want(device.F32, 2*o.Rows, &x.Stats)
		return enqueue(x)
	},
	"LayerNormBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.LayerNormBackward{Rows: o.Rows, Dim: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.X, &x.DX, &x.DY)
		a.want(device.F32, o.Cols, &x.W, &x.DW)
		a.filled(&x.Stats, device.F32, 2*o.Rows, ones)
		return enqueue(x)
	},
	"RMSNorm": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.RMSNorm{Rows: o.Rows, Groups: 1, Dim: o.Cols, XStride: o.Cols, YStride: o.Cols, Eps: 1e-6}
		a.want(o.DType, o.Rows*o.Cols, &x.X, &x.Y)
		a.want(device.F32, o.Cols, &x.W)
		a.want(device.F32, o.Rows, &x.RStd)
		return enqueue(x)
	},
	"RMSNormBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.RMSNormBackward{Rows: o.Rows, Groups: 1, Dim: o.Cols, XStride: o.Cols, DXStride: o.Cols, DYStride: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.X, &x.DX, &x.DY)
		a.want(device.F32, o.Cols, &x.W, &x.DW)
		a.filled(&x.RStd, device.F32, o.Rows, ones)
		return enqueue(x)
	},
	"RoPE": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		dim := min(headDim, o.Cols)
		x := &op.RoPE{T: o.Rows, Heads: o.Cols / dim, Dim: dim, Rotary: dim / 2 * 2, Stride: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.X)
		half := max(1, x.Rotary/2)
		angle := func(i int) float64 { return float64(i/half) * math.Pow(10000, -float64(i%half)/float64(half)) }
		a.filled(&x.Cos, device.F32, o.Rows*half, func(i int) float64 { return math.Cos(angle(i)) })
		a.filled(&x.Sin, device.F32, o.Rows*half, func(i int) float64 { return math.Sin(angle(i)) })
		a.filled(&x.Pos, device.I32, o.Rows, counting)
		return enqueue(x)
	},
	"Router": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.Router{T: o.Rows, E: o.Cols, K: min(chosen, o.Cols), Normalize: true}
		a.want(device.F32, o.Rows*o.Cols, &x.Logits)
		a.want(device.I32, o.Rows*x.K, &x.IDs)
		a.want(device.F32, o.Rows*x.K, &x.Weights)
		a.want(device.F32, o.Cols, &x.ProbSum)
		return enqueue(x)
	},
	"RouterBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.RouterBackward{T: o.Rows, E: o.Cols, K: min(chosen, o.Cols), Normalize: true}
		a.want(device.F32, o.Rows*o.Cols, &x.DLogits, &x.Logits)
		a.filled(&x.IDs, device.I32, o.Rows*x.K, experts(o.Cols, x.K))
		a.want(device.F32, o.Rows*x.K, &x.DWeights)
		return enqueue(x)
	},
	"Scale": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.Scale{N: int64(o.Rows) * int64(o.Cols), Factor: 1}
		a.want(o.DType, o.Rows*o.Cols, &x.X)
		return enqueue(x)
	},
	"ScaleRows": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.ScaleRows{T: o.Rows, C: o.Cols, P: o.Rows}
		a.want(o.DType, o.Rows*o.Cols, &x.X)
		a.filled(&x.W, device.F32, o.Rows, ones)
		a.filled(&x.Index, device.I32, o.Rows, permuted(o.Rows))
		return enqueue(x)
	},
	"ScaleRowsBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.ScaleRowsBackward{T: o.Rows, C: o.Cols, P: o.Rows}
		a.want(o.DType, o.Rows*o.Cols, &x.DY, &x.Y)
		a.filled(&x.W, device.F32, o.Rows, ones)
		a.want(device.F32, o.Rows, &x.DW)
		a.filled(&x.Index, device.I32, o.Rows, permuted(o.Rows))
		return enqueue(x)
	},
	"ScatterAddRows": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.ScatterAddRows{U: (o.Rows + 1) / 2, T: o.Rows, C: o.Cols} // each id occurs twice
		a.want(device.F32, x.U*o.Cols, &x.DRows)
		a.want(o.DType, o.Rows*o.Cols, &x.DY)
		a.filled(&x.Start, device.I32, x.U+1, func(i int) float64 { return float64(min(2*i, o.Rows)) })
		a.filled(&x.Pos, device.I32, o.Rows, permuted(o.Rows))
		return enqueue(x)
	},
	"WeightedBiasGrad": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.WeightedBiasGrad{T: o.Rows, C: o.Cols, P: o.Rows}
		a.want(o.DType, o.Rows*o.Cols, &x.DY)
		a.want(device.F32, o.Cols, &x.B, &x.DB)
		a.filled(&x.W, device.F32, o.Rows, ones)
		a.want(device.F32, o.Rows, &x.DW)
		a.filled(&x.Index, device.I32, o.Rows, permuted(o.Rows))
		return enqueue(x)
	},
	"SSD": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.SSD{SSDShape: ssdShape(o)}
		a.want(o.DType, o.Rows*o.Cols, &x.O)
		a.wantSSD(o, &x.SSDShape, &x.XBC, &x.Dt, &x.ALog, &x.DtBias, &x.D, &x.States)
		return enqueue(x)
	},
	"SSDBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.SSDBackward{SSDShape: ssdShape(o)}
		a.want(o.DType, o.Rows*o.Cols, &x.DO)
		a.want(o.DType, o.Rows*x.Width(), &x.DXBC)
		a.want(o.DType, o.Rows*x.DtStride, &x.DDt)
		a.want(device.F32, x.Heads, &x.DALog, &x.DDtBias, &x.DD)
		a.want(device.F32, x.StatesLen(), &x.DStates)
		a.wantSSD(o, &x.SSDShape, &x.XBC, &x.Dt, &x.ALog, &x.DtBias, &x.D, &x.States)
		return enqueue(x)
	},
	"ShortConv": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.ShortConv{Seqs: 1, T: o.Rows, C: o.Cols, Taps: shortTaps, XStride: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.Y, &x.X)
		a.want(device.F32, o.Cols*x.Taps, &x.W)
		a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
		return enqueue(x)
	},
	"ShortConvBackward": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.ShortConvBackward{Seqs: 1, T: o.Rows, C: o.Cols, Taps: shortTaps, XStride: o.Cols, DXStride: o.Cols}
		a.want(o.DType, o.Rows*o.Cols, &x.DX, &x.DY, &x.X)
		a.want(device.F32, o.Cols*x.Taps, &x.W, &x.DW)
		a.filled(&x.Cu, device.I32, 2, func(i int) float64 { return float64(i * o.Rows) })
		return enqueue(x)
	},
	"Sinks": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.Sinks{T: o.Rows, Heads: max(1, o.Cols/headDim)}
		x.Dim = o.Cols / x.Heads
		a.want(o.DType, o.Rows*x.Heads*x.Dim, &x.O)
		a.want(device.F32, o.Rows*x.Heads, &x.LSE)
		a.want(device.F32, x.Heads, &x.Sinks)
		return enqueue(x)
	},
	"SinksGrad": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.SinksGrad{T: o.Rows, Heads: o.Cols} // a column is a head
		a.want(device.F32, x.Heads, &x.DSinks)
		a.want(device.F32, o.Rows*x.Heads, &x.LSE, &x.Delta)
		a.want(device.F32, x.Heads, &x.Sinks)
		return enqueue(x)
	},
	"SortByExpert": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.SortByExpert{K: min(chosen, o.Cols), E: o.Cols}
		x.N = o.Rows * x.K
		a.filled(&x.IDs, device.I32, x.N, experts(o.Cols, x.K))
		a.want(device.I32, x.N, &x.Order, &x.Rows)
		a.want(device.I32, o.Cols+1, &x.Offsets)
		return enqueue(x)
	},
	"SumHeads": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		dim := min(headDim, o.Cols)
		x := &op.SumHeads{T: o.Rows, Heads: o.Cols / dim, C: dim, DstStride: dim, SrcStride: o.Cols, SrcHead: dim}
		a.want(o.DType, o.Rows*dim, &x.Dst)
		a.want(o.DType, o.Rows*o.Cols, &x.Src)
		return enqueue(x)
	},
	"DivideByNorm": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.DivideByNorm{N: int64(o.Rows) * int64(o.Cols), Eps: 1}
		a.want(o.DType, o.Rows*o.Cols, &x.X)
		return enqueue(x)
	},
	"WeightedSum": func(o Operation, a *memory) func(device.Device, device.Stream) op.Mover {
		x := &op.WeightedSum{N: int64(o.Rows) * int64(o.Cols), A: 1}
		a.want(o.DType, o.Rows*o.Cols, &x.D, &x.X)
		a.want(device.F32, o.Rows*o.Cols, &x.Y)
		return enqueue(x)
	},
}

// experts returns a function that gives each token k different experts out of e: it maps index i to the expert of
// choice i%k of token i/k.
func experts(e, k int) func(i int) float64 {
	return func(i int) float64 { return float64((i/k*5 + i%k) % e) }
}

// OfExperts reports whether Cols is a number of experts for the operation, at most op.MaxExperts.
func OfExperts(name string) bool {
	return name == "Router" || name == "RouterBackward" || name == "SortByExpert"
}

// Operation measures one operation. bytes is the device memory that it reads and writes (op.Mover).
func (m *Meter) Operation(o Operation) (t Seconds, bytes int64, err error) {
	make, ok := builds[o.Name]
	switch {
	case !ok:
		return t, 0, fmt.Errorf("measure: there is no operation %q to measure: there are %v", o.Name, Operations())
	case o.Rows < 1 || o.Cols < 1 || OfExperts(o.Name) && o.Cols > op.MaxExperts:
		return t, 0, fmt.Errorf("measure: %s: want at least 1 × 1, and at most %d experts", o, op.MaxExperts)
	}
	a := memory{m: m}
	call := make(o, &a)
	mem, err := a.take()
	if err != nil {
		return t, 0, fmt.Errorf("measure: %s: %w", o, err)
	}
	defer m.dev.Free(mem)
	t, err = m.enqueued(func() { bytes = call(m.dev, m.s).Bytes() })
	if err != nil {
		return t, 0, fmt.Errorf("measure: %s: %w", o, err)
	}
	return t, bytes, nil
}
