package plan

import (
	"errors"
	"fmt"
	"math"

	"mt/layers/schedule"
)

// This file divides a step into rounds. In a round some of the step's micro-batches go forward and backward through all
// layers before those of the next round begin. So device and host need memory for what blocks keep of one round only,
// and blocks keep more of it. In return, weights cross the link once more for each round, and the sums of gradients go to
// the host and back.
//
// With one order of micro-batches in all layers (schedule.Lanes) the number of rounds changes no sum. Zigzag changes the
// order of sums, so its runs have one round.

// roundsWorth is the least share of a step that rounds must save, because they use the link and host memory.
const roundsWorth = 0.02

// StepRounds returns the number of rounds of a full step. It may be less than Rounds: 4 micro-batches in 3 rounds need
// the memory of 2 rounds.
func (r *Run) StepRounds() int {
	return schedule.Spec{PerRound: r.roundMicroBatches()}.Rounds(r.Limits.MicroBatches)
}

// roundMicroBatches returns the most micro-batches of a round.
func (r *Run) roundMicroBatches() int {
	n := r.Limits.MicroBatches
	rounds := max(1, min(r.Rounds, n))
	return (n + rounds - 1) / rounds
}

// roundTokens returns the most tokens of a round.
func (r *Run) roundTokens() int {
	if r.StepRounds() == 1 {
		return r.Limits.Tokens
	}
	return min(r.Limits.Tokens, r.roundMicroBatches()*r.Limits.MicroBatchTokens)
}

// RoundWords describes the rounds of a step; "" if there is one.
func (r *Run) RoundWords() string {
	if r.StepRounds() == 1 {
		return ""
	}
	of := fmt.Sprintf("%d micro-batches", r.roundMicroBatches())
	if r.roundMicroBatches() == 1 {
		of = "1 micro-batch"
	}
	return fmt.Sprintf("%d rounds of %s, each forward and backward through all layers", r.StepRounds(), of)
}

// oneRound returns why the requested run can have only one round; "": it can have several.
func (r *Run) oneRound(q Request) string {
	for _, x := range []struct {
		is  bool
		why string
	}{
		{q.Order != schedule.Lanes && !q.AnyOrder, "micro_batch_order: zigzag has another order of sums in each round; a new run can set micro_batch_order: lanes"},
		{!q.Clip, "without max_grad_norm gradients have no host memory of their own"},
		{q.Devices > 1, "with several devices micro-batches follow each other from device to device"},
		{q.Ranks > 1, "several hosts exchange each gradient once"},
		{q.HiddenStates == "host", "hidden states are on the host"},
		{q.GradDType == "bf16" || r.GradBF16 && q.Rounds <= 1, "sums of grad_dtype: bf16 would be rounded in each round"},
		{r.Experts > 0, "experts see all tokens of a step at once"},
		{!q.Preference.None(), "training on pairs of answers is not tested in rounds"},
		{r.GradOnDisk != nil, "gradients wait on disks"},
	} {
		if x.is {
			return x.why
		}
	}
	return ""
}

// checkRounds returns an error if the request asks for rounds that the run cannot have.
func (r *Run) checkRounds(q Request) error {
	if q.Rounds <= 1 {
		return nil
	}
	if why := r.oneRound(q); why != "" {
		return &BadDepth{"pipeline.rounds", fmt.Sprintf("pipeline.rounds: %d is not possible (%s): leave it out", q.Rounds, why)}
	}
	return nil
}

// setRounds divides steps into n rounds.
func (r *Run) setRounds(n int) {
	if r.Rounds = n; n > 1 {
		r.Order = schedule.Lanes
	}
}

// chooseRounds chooses the number of rounds with the shortest step, unless the request does. The argument open is the
// plan before the choice of what blocks keep.
func (r *Run) chooseRounds(q Request, open Run) {
	if q.Rounds > 0 || r.OneMemory || r.StateOnDisk != nil || r.oneRound(q) != "" {
		return
	}
	best := r.stepSeconds(r.saveOptions()) * (1 - roundsWorth)
	for n := 1; n < r.Limits.MicroBatches; n *= 2 { // micro-batches in a round
		v := open
		v.setRounds((r.Limits.MicroBatches + n - 1) / n)
		v.raiseBuffers(q)
		v.chooseKept(q)
		if t := v.stepSeconds(v.saveOptions()); t < best && v.lacks(q, v.Table()) == nil {
			*r, best = v, t
		}
	}
}

// fittingRounds returns the plan in several rounds with the shortest step, for a request whose plan in one round does not
// fit or has data on disk. The arguments one and err are the latter plan and its error. Rounds replace data on disk only
// if they need no disk and make the step shorter by an estimate that leaves out disks. If no number of rounds fits, the
// error has the least need of the memory that one round lacks.
func fittingRounds(q Request, one *Run, err error) (*Run, error) {
	best, least, lack := one, math.Inf(1), (*NotFitting)(nil)
	if err == nil {
		least = one.stepSeconds(one.saveOptions())
		q.StateDir, q.ParamDir = false, false
	}
	errors.As(err, &lack)
	for n := 2; n <= q.Rows; n *= 2 {
		q.Rounds = n
		r, failed := choose(q)
		var less *NotFitting
		switch {
		case failed == nil:
			if t := r.stepSeconds(r.saveOptions()); t < least {
				best, err, lack, least = r, nil, nil, t
			}
		case !errors.As(failed, &less):
			return best, err
		case lack != nil && less.Where == lack.Where && less.Need < lack.Need:
			best, err, lack = r, less, less
		}
		if n >= r.Limits.MicroBatches {
			break
		}
	}
	return best, err
}

// moreBuffers returns n, a number of buffers to add, in a run with rounds: more copies are in progress there. Otherwise
// it returns 0.
func (r *Run) moreBuffers(n int) int {
	if r.StepRounds() > 1 {
		return n
	}
	return 0
}
