package checkpoint

import (
	"encoding/json"
	"math"
	"testing"
)

// TestPairLog: a window of the log is written as it always was, a list of numbers, and none where there are no pairs; it is
// read back, and takes in no numbers that are not finite.
func TestPairLog(t *testing.T) {
	w := LogWindow{Steps: 2, Tokens: 3, Loss: 0.5}
	for _, text := range []string{
		`{"steps":2,"supervised_tokens":3,"loss":0.5}`,
		`{"steps":2,"supervised_tokens":3,"loss":0.5,"pairs":[1,2,3,4,5,6]}`,
		`{"steps":2,"supervised_tokens":3,"loss":0.5,"pairs":[2,4,6,8,10,12]}`,
	} {
		got, err := json.Marshal(w)
		if err != nil || string(got) != text {
			t.Errorf("%s, %v, not %s", got, err, text)
		}
		var read LogWindow
		if err := json.Unmarshal([]byte(text), &read); err != nil || read != w {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		w.AddPairs(PairLog{Pairs: 1, Chosen: 2, Rejected: 3, Right: 4, LogChosen: 5, LogRejected: 6})
	}
	was := w
	w.AddPairs(PairLog{Pairs: 1, LogRejected: math.NaN()})
	w.AddPairs(PairLog{Pairs: 1, Chosen: math.Inf(1)})
	if w != was {
		t.Errorf("%+v after numbers that are not finite, %+v before", w, was)
	}
	for _, text := range []string{`{"pairs":"none"}`, `{"pairs":[1,2,3,4,5]}`, `{"pairs":[1,2,3,4,5,6,7]}`} {
		if err := json.Unmarshal([]byte(text), &w); err == nil {
			t.Errorf("%s is read as %+v", text, w)
		}
	}
}
