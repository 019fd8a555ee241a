package session

import (
	"testing"

	"mt/actors"
)

// TestAfter: a step that is skipped is no update.
func TestAfter(t *testing.T) {
	was := actors.State{Step: 4, AdamStep: 3, NonFinite: 1, Tokens: 50}
	for skipped, want := range map[bool]actors.State{
		false: {Step: 5, AdamStep: 4, Tokens: 60},
		true:  {Step: 5, AdamStep: 3, NonFinite: 2, Tokens: 60},
	} {
		if got := after(was, actors.StepReport{Step: 5, TotalTokens: 60, Skipped: skipped}); got != want {
			t.Errorf("skipped %t: %+v, want %+v", skipped, got, want)
		}
	}
}
