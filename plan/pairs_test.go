package plan

import (
	"testing"

	"mt/device"
	"mt/device/op"
)

// TestBatchOfPairs: a batch of pairs has room for what a reference thinks of each document, of which there may be as many as tokens, in a tensor for each
// micro-batch.
func TestBatchOfPairs(t *testing.T) {
	q := request()
	q.Rows, q.RowTokens, q.MicroBatchTokens = 8, 4096, 8192
	tokens := resolve(t, q)
	q.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}
	pairs := resolve(t, q)
	l := pairs.Limits
	if more := pairs.BatchIntBytes() - tokens.BatchIntBytes(); l.MicroBatches < 4 || l.Sequences != l.Tokens || more != 4*int64(l.Tokens)+int64(l.MicroBatches)*device.Align {
		t.Errorf("%d bytes more for batches of pairs within %+v", more, l)
	}
}
