package actors

import (
	"strings"
	"testing"

	"mt/data"
	"mt/device/op"
)

// TestOnlyPairs: a run on pairs ends where a batch has something else, or a pair the wrong way round.
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
