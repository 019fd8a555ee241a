package rates

import (
	"fmt"
	"strconv"

	"mt/device"
	"mt/device/op"
)

// Beside pairs a measured value with its prediction, in the same unit.
type Beside struct {
	Predicted float64 `json:"predicted,omitempty"` // 0: no prediction
	Measured  float64 `json:"measured"`
	Ratio     float64 `json:"ratio,omitempty"` // measured / predicted; 0: no prediction
}

// Against makes a Beside of a predicted and a measured value; predicted 0: there is no prediction.
func Against(predicted, measured float64) Beside {
	b := Beside{Predicted: predicted, Measured: measured}
	if predicted > 0 {
		b.Ratio = measured / predicted
	}
	return b
}

// Words formats the predicted value and the ratio for a table. Both are "" if there is no prediction.
func (b Beside) Words() (predicted, ratio string) {
	if b.Predicted == 0 {
		return "", ""
	}
	return strconv.FormatFloat(Round(b.Predicted), 'f', -1, 64), fmt.Sprintf("%.2f", b.Ratio)
}

// ProductSeconds predicts the time of one matrix product on m. The shape is in p, whose Rate is
// ignored. Argument sum says that the product is added to an fp32 matrix. The result is 0 if m is
// nil or has no rates of products in dtype.
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

// AttentionSeconds predicts the time of one launch of causal attention on m, over tokens tokens in sequences of length
// tokens each. The result is 0 if m is nil or has no rates of attention in dtype.
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
