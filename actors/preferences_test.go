package actors

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"mt/data"
	"mt/device"
	"mt/device/op"
	"mt/layers"
	"mt/plan"
)

// TestOnlyPairs: a run on pairs fails on a batch with other documents, or with a pair in the wrong order.
func TestOnlyPairs(t *testing.T) {
	for want, spoil := range map[string]func(m *data.MicroBatch){
		"needs data of pairs alone":         func(m *data.MicroBatch) { m.Pairs = m.Pairs[1:] },
		"documents 1 and 0, want 0 and 1":   func(m *data.MicroBatch) { m.Pairs[0].Chosen, m.Pairs[0].Rejected = 1, 0 },
		"pair 0 is documents 0 and 0, want": func(m *data.MicroBatch) { m.Pairs[0].Rejected = 0 },
	} {
		tr := base()
		tr.pairs, tr.batch = op.Sigmoid, func(step int, b *data.Batch) {
			if step == 2 {
				spoil(&b.MicroBatches[0])
			}
		}
		if out, err := tr.run(t); err == nil || !strings.Contains(err.Error(), want) || len(out.steps) > 1 {
			t.Errorf("%v after %d steps, want %q", err, len(out.steps), want)
		}
	}
}

// TestSamePairs: the device gets the list of pairs whose chosen and rejected answers are the same
// tokens, and of no other pairs.
func TestSamePairs(t *testing.T) {
	p := &plan.Run{Spec: layers.Spec{Preference: op.PreferenceLoss{Kind: op.Sigmoid, Beta: 0.1}}}
	r := &lane{plan: p, run: &run{plan: p, o: &Options{Preferences: &Preferences{Reference: func(_ bool, id int64) [2]float32 { return [2]float32{float32(id), -1} }}}}}
	m := data.MicroBatch{IDs: []int32{1, 2, 3, 1, 2, 3, 1, 2, 1, 3, 4, 5, 4, 5}, Targets: []int32{2, 3, -100, 2, 3, -100, 2, -100, 3, -100, 5, -100, -100, -100},
		CuSeqlens: []int32{0, 3, 6, 8, 10, 12, 14}, Pairs: []data.Pair{{ID: 1, Chosen: 0, Rejected: 1}, {ID: 2, Chosen: 2, Rejected: 3}, {ID: 3, Chosen: 4, Rejected: 5}}}
	to := &layers.MicroBatch{Seqs: 6}
	var got []string
	r.fillReferences(&Pass{Batch: &data.Batch{}}, &m, to, func(bits []int32) device.Tensor {
		for _, b := range bits {
			got = append(got, fmt.Sprint(math.Float32frombits(uint32(b))))
		}
		return device.Tensor{}
	})
	if all := strings.Join(got, " "); all != "NaN NaN 2 -1 3 -1" {
		t.Error(all)
	}
}
