package rates

import (
	"fmt"
	"strconv"

	"mt/device"
	"mt/device/op"
)

// Beside is what a machine's rates predict for a figure, beside what was measured, in one unit.
type Beside struct {
	Predicted float64 `json:"predicted,omitempty"` // 0: no rate says it
	Measured  float64 `json:"measured"`
	Ratio     float64 `json:"ratio,omitempty"` // measured over predicted; 0: nothing was predicted
}

// Against returns measured beside predicted.
func Against(predicted, measured float64) Beside {
	b := Beside{Predicted: predicted, Measured: measured}
	if predicted > 0 {
		b.Ratio = measured / predicted
	}
	return b
}

// Words prints the predicted value and the ratio to it. Both are empty where nothing was predicted.
func (b Beside) Words() (predicted, ratio string) {
	if b.Predicted == 0 {
		return "", ""
	}
	return strconv.FormatFloat(Round(b.Predicted), 'f', -1, 64), fmt.Sprintf("%.2f", b.Ratio)
}

// ProductSeconds is what one product of p's shape takes on m, whatever p's rate is; 0 where m is nil or computes in no such dtype.
// sum adds it to an fp32 matrix.
func (m *Machine) ProductSeconds(p Product, dtype device.DType, sum bool) float64 {
	if m == nil || len(m.Device.Products[name(dtype)]) == 0 {
		return 0
	}
	t := device.Tensor{DType: dtype}
	d := t
	if sum {
		d.DType = device.F32
	}
	return NewCosts(m).Op(&op.MatMul{M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB, A: t, B: t, D: d}).Seconds
}

// AttentionSeconds is what one launch of causal attention takes on m, over tokens in sequences of length tokens; 0 where m is nil or
// computes in no such dtype.
func (m *Machine) AttentionSeconds(tokens, length, heads, kvHeads, dim int, dtype device.DType, backward bool) float64 {
	if m == nil || len(m.Device.Attention[name(dtype)]) == 0 {
		return 0
	}
	s := op.AttentionShape{Seqs: (tokens + length - 1) / length, TQ: tokens, TK: tokens, MaxQ: length, MaxK: length, Heads: heads, KVHeads: kvHeads, Dim: dim}
	q := device.Tensor{DType: dtype}
	if backward {
		return NewCosts(m).Op(&op.AttentionBackward{AttentionShape: s, Q: q}).Seconds
	}
	return NewCosts(m).Op(&op.Attention{AttentionShape: s, Q: q}).Seconds
}
