package actors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// optimizing is an Optimizer's core for two layers with clipping, whose works complete at once. did
// lists its updates and reports in words, which tests compare.
type optimizing struct {
	core *optimizerCore
	did  []string
}

func (o *optimizing) tell(msgs ...message) {
	for _, msg := range msgs {
		for _, e := range o.core.step(msg) {
			o.take(e)
		}
	}
}

func (o *optimizing) done(w work, result any) {
	for _, s := range w.completed(result) {
		o.tell(s.msg)
	}
}

func (o *optimizing) take(e effect) {
	switch e := e.(type) {
	case work:
		switch d := e.do.(type) {
		case measure:
			o.done(e, 1.0)
		case update:
			o.did = append(o.did, fmt.Sprintf("update %d", d.Layer))
			o.done(e, nil)
		}
	case send:
		switch m := e.msg.(type) {
		case LayerUpdated:
			if e.to == laneID(0).prefetcher() {
				o.did = append(o.did, fmt.Sprintf("layer %d is at %d", m.Layer, m.Version))
			}
		case StepUpdated:
			o.did = append(o.did, fmt.Sprintf("step %d is done", m.Step))
		}
	}
}

// TestSkippedStepsAndSaves: a skipped step changes no layer, so it may end while the Checkpointer
// still writes an earlier step. The layers stay marked as being saved. A skipped step that must be
// saved itself waits until the earlier save is done.
func TestSkippedStepsAndSaves(t *testing.T) {
	step := func(n int, skip, save bool) []message {
		return []message{GradLanded{Step: n, Layer: 1}, GradLanded{Step: n, Layer: 0}, StepClosed{Step: n, LR: 1, Skip: skip, Save: save}}
	}
	saved := []message{LayerSaved{Step: 1, Layer: 0}, LayerSaved{Step: 1, Layer: 1}}
	one := []string{"update 0", "layer 0 is at 1", "update 1", "layer 1 is at 1", "step 1 is done"}
	two := []string{"layer 0 is at 2", "layer 1 is at 2", "step 2 is done"}
	three := []string{"update 0", "layer 0 is at 3", "update 1", "layer 1 is at 3", "step 3 is done"}
	for name, c := range map[string]struct {
		told []message // after step 1, which is saved
		want []string
	}{
		"a skipped step passes, the next update waits": {slices.Concat(step(2, true, false), step(3, false, false)), two},
		"and goes on when the save is done":            {slices.Concat(step(2, true, false), step(3, false, false), saved), slices.Concat(two, three)},
		"a skipped step that is saved waits":           {step(2, true, true), nil},
		"for every layer":                              {append(step(2, true, true), saved[0]), nil},
		"and goes on when the save before it is done":  {slices.Concat(step(2, true, true), saved), two},
		"its own save holds the layers as any other":   {slices.Concat(step(2, true, true), saved, step(3, false, false)), two},
		"without a save under way nothing waits":       {slices.Concat(saved, step(2, true, true)), two},
	} {
		t.Run(name, func(t *testing.T) {
			o := &optimizing{core: newOptimizerCore(optimizerSpec{lanes: 1, clip: 1, into: ids(2)}, State{})}
			o.tell(step(1, false, true)...)
			if !slices.Equal(o.did, one) {
				t.Fatalf("step 1: %q", o.did)
			}
			o.did = nil
			o.tell(c.told...)
			if !slices.Equal(o.did, c.want) {
				t.Errorf("it did\n%s\nwant\n%s", strings.Join(o.did, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}
