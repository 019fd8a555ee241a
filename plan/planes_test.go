package plan

import "testing"

// TestEvaluationsKeepWeightsAlone: an evaluation is asked for with an optimizer's
// planes as training is, and takes none.
func TestEvaluationsKeepWeightsAlone(t *testing.T) {
	q := request()
	q.EvalOnly = true
	r := resolve(t, q)
	for _, row := range r.Table().Rows {
		if row.Purpose == "moments" {
			t.Errorf("%+v", row)
		}
	}
	if r.Planes != nil {
		t.Error("an evaluation keeps more than weights")
	}
}
