package actors

import (
	"testing"

	"mt/layers/schedule"
)

// TestFetchesWaitForSpills: an activation of which several spills were requested (Take.Spills) is
// copied back only after all of them are complete.
func TestFetchesWaitForSpills(t *testing.T) {
	s := schedule.Spec{Layers: dense(3)}
	c := newPrefetcherCore(fetching(s, false, testDepths(1)), 0)
	p := &Pass{Seq: 7, Program: &schedule.Program{Objects: []schedule.Object{{Tokens: 4, Host: 8}}, ActTakes: []schedule.Take{{Object: 0, Fetch: true, Spills: 2}}}}
	var fetched []int // after how many spills
	for spills, m := range []message{PassPlanned{p}, ActivationSpilled{Prog: 7}, ActivationSpilled{Prog: 6}, ActivationSpilled{Prog: 7}} {
		for _, e := range c.step(m) {
			if w, ok := e.(work); ok {
				if f, ok := w.do.(fetchActivation); ok && f.Host == 8 && f.Tokens == 4 {
					fetched = append(fetched, spills)
				}
			}
		}
	}
	if len(fetched) != 1 || fetched[0] != 3 { // the second is another program's
		t.Errorf("fetched after the messages %v, want the last", fetched)
	}
}
