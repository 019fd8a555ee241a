package plan

import (
	"errors"
	"strings"
	"testing"

	"mt/device/op"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// inRounds requests steps of 7B on an H100 whose rates are known, in a new run.
func inRounds(t *testing.T, rows int) Request {
	q := with512GiB(t, rows)
	q.AnyOrder, q.Paces = true, []Pace{{FLOPs: 700e12, Link: 51e9}}
	return q
}

// TestRoundsPay: a step has several rounds where that makes it at least 2 % shorter, and nowhere else. Device and host
// then have memory for what one round keeps, and blocks keep more of it.
func TestRoundsPay(t *testing.T) {
	for name, c := range map[string]struct {
		rows   int
		rounds bool
		change func(*Request)
	}{
		"512 rows":             {512, true, nil},
		"64 rows":              {64, false, nil},
		"a small host":         {512, true, func(q *Request) { q.HostMemory = 250 << 30 }},
		"a host for a round":   {512, true, func(q *Request) { q.HostMemory = 160 << 30 }},
		"rates unknown":        {512, true, func(q *Request) { q.Paces = nil }},
		"a recorded order":     {512, false, func(q *Request) { q.AnyOrder = false }},
		"the order of lanes":   {512, true, func(q *Request) { q.AnyOrder, q.Order = false, schedule.Lanes }},
		"all computed again":   {512, false, func(q *Request) { q.Recompute = "full" }},
		"a large device":       {512, false, func(q *Request) { q.DeviceMemory = 2 << 40 }},
		"one memory":           {512, false, func(q *Request) { q.OneMemory, q.HostMemory = true, 512<<30 }},
		"gradients on disks":   {128, false, func(q *Request) { q.StateDir, q.HostMemory = true, 52<<30 }},
		"one round asked for":  {512, false, func(q *Request) { q.Rounds = 1 }},
		"an evaluation":        {512, false, func(q *Request) { q.EvalOnly, q.Rounds = true, 8 }},
		"as many as asked for": {64, true, func(q *Request) { q.Rounds = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := inRounds(t, c.rows)
			if c.change != nil {
				c.change(&q)
			}
			r := resolve(t, q)
			if over := beyond(r, q); over != "" || (r.StepRounds() > 1) != c.rounds || (r.RoundWords() != "") != c.rounds {
				t.Fatalf("%d rounds, %q, want several: %t: %s", r.StepRounds(), r.RoundWords(), c.rounds, over)
			}
			if !c.rounds {
				return
			}
			if r.Order != schedule.Lanes || r.Schedule().Rounds(r.Limits.MicroBatches) != r.StepRounds() || q.Rounds > 0 && r.StepRounds() != q.Rounds {
				t.Errorf("%d rounds in order %s, asked for %d", r.StepRounds(), r.Order, q.Rounds)
			}
			still := q
			still.Rounds = 1
			if one, err := Resolve(still); err == nil && q.Rounds == 0 && r.stepSeconds(r.saveOptions()) > (1-roundsWorth)*one.stepSeconds(one.saveOptions()) {
				t.Errorf("%d rounds do not make a step %g shorter", r.StepRounds(), roundsWorth)
			}
		})
	}
}

// TestOneRound: what cannot have several rounds is refused if they are asked for, with the reason, and gets one
// otherwise.
func TestOneRound(t *testing.T) {
	for says, change := range map[string]func(*Request){
		"zigzag":           func(q *Request) { q.AnyOrder = false },
		"max_grad_norm":    func(q *Request) { q.Clip = false },
		"several devices":  func(q *Request) { q.Devices, q.Order = 2, schedule.Lanes },
		"hidden states":    func(q *Request) { q.HiddenStates = "host" },
		"grad_dtype: bf16": func(q *Request) { q.GradDType = "bf16" },
		"experts see":      func(q *Request) { q.Config, q.HostMemory = testkit.Must(model.Preset("qwen3-30b-a3b"))(t), 1<<40 },
		"pairs of answers": func(q *Request) { q.Preference = op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1} },
	} {
		t.Run(says, func(t *testing.T) {
			q := inRounds(t, 128)
			change(&q)
			if r, err := Resolve(q); err != nil || r.StepRounds() > 1 {
				t.Fatalf("%v, or several rounds", err)
			}
			q.Rounds = 4
			var bad *BadDepth
			if _, err := Resolve(q); !errors.As(err, &bad) || bad.Key != "pipeline.rounds" || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		})
	}
}

// TestRoundsAreAWayOut: a run that fits only in rounds says so if one is asked for.
func TestRoundsAreAWayOut(t *testing.T) {
	q := inRounds(t, 512)
	q.HostMemory, q.Rounds = 160<<30, 1
	if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), "leave out pipeline.rounds: 1") {
		t.Error(err)
	}
}

// TestLackingRounds: a run that does not fit even in rounds says what it needs in rounds, which is less than in one.
func TestLackingRounds(t *testing.T) {
	need := func(rounds int, budget int64) int64 {
		q := inRounds(t, 512)
		q.Rounds, q.HostMemory = rounds, budget
		_, err := Resolve(q)
		var lack *NotFitting
		if !errors.As(err, &lack) {
			t.Fatal(err)
		}
		return lack.Need
	}
	one, several := need(1, 1<<30), need(0, 1<<30)
	if several > one*3/4 {
		t.Errorf("the run needs %d bytes in rounds, and %d in one", several, one)
	}
	q := inRounds(t, 512)
	for q.HostMemory = several; ; q.HostMemory += q.HostMemory / 100 {
		if r, err := Resolve(q); err == nil {
			if q.HostMemory > several*21/20 || r.StepRounds() == 1 {
				t.Errorf("%d rounds fit in %d bytes, not in the %d that the error named", r.StepRounds(), q.HostMemory, several)
			}
			break
		}
	}
}

// TestRoundsBeforeDisks: a run that would need disks in one round has rounds, if these need none and make its step
// shorter.
func TestRoundsBeforeDisks(t *testing.T) {
	for name, c := range map[string]struct {
		rows   int
		rounds bool
		change func(*Request)
	}{
		"512 rows":               {512, true, nil},
		"one round asked for":    {512, false, func(q *Request) { q.Rounds = 1 }},
		"a recorded order":       {512, false, func(q *Request) { q.AnyOrder = false }},
		"states on disks anyway": {128, false, func(q *Request) { q.HostMemory = 100 << 30 }},
	} {
		t.Run(name, func(t *testing.T) {
			q := inRounds(t, c.rows)
			if q.StateDir, q.HostMemory = true, 160<<30; c.change != nil {
				c.change(&q)
			}
			r := resolve(t, q)
			if over := beyond(r, q); over != "" || (r.StepRounds() > 1) != c.rounds || (r.StateOnDisk == nil) != c.rounds {
				t.Errorf("%d rounds, want several: %t; on disk %v: %s", r.StepRounds(), c.rounds, r.StateOnDisk, over)
			}
			for q.Rounds, q.StateDir = 2, false; c.rounds && q.Rounds <= 64; q.Rounds *= 2 {
				if other, err := Resolve(q); err == nil && other.stepSeconds(other.saveOptions()) < r.stepSeconds(r.saveOptions()) {
					t.Errorf("%d rounds make a shorter step than %d", other.StepRounds(), r.StepRounds())
				}
			}
		})
	}
}

// TestMemoryOfRounds: every round fits in the memory that the plan has for one, however its micro-batches are divided.
func TestMemoryOfRounds(t *testing.T) {
	for bound := 1; bound <= 12; bound++ {
		for rounds := 1; rounds <= 14; rounds++ {
			r := Run{Rounds: rounds, Limits: Limits{MicroBatches: bound, MicroBatchTokens: 10, Tokens: 10 * bound}}
			for n := 1; n <= bound; n++ {
				s := schedule.Spec{PerRound: r.roundMicroBatches()}
				for _, i := range s.InRound(n) {
					if i >= r.roundMicroBatches() || 10*(i+1) > r.roundTokens() {
						t.Fatalf("%d rounds of at most %d micro-batches: micro-batch %d of a round of %d", rounds, bound, i, n)
					}
				}
			}
			if whole := r.roundTokens() == r.Limits.Tokens; whole != (r.StepRounds() == 1) {
				t.Errorf("%d rounds of at most %d micro-batches: one has all tokens: %t", rounds, bound, whole)
			}
		}
	}
}
