package settings

import (
	"mt/checkpoint"
	"mt/internal/config"
)

// Cadence is how often a run saves, evaluates and logs: every so many steps (0:
// not before its end), or at the end of every epoch.
type Cadence struct {
	Save, Eval, Log        int
	SaveEpochs, EvalEpochs bool
	SaveEvals              bool // at every evaluation too
}

// CadenceOf is how often a run of c does so.
func CadenceOf(c *config.Config) Cadence {
	n := Cadence{Save: c.SaveSteps.Of(c.MaxSteps), Eval: c.EvalSteps.Of(c.MaxSteps), Log: c.LoggingSteps.Of(c.MaxSteps),
		SaveEpochs: c.SaveStrategy == "epoch", EvalEpochs: c.EvalStrategy == "epoch", SaveEvals: c.SaveBest}
	if n.SaveEpochs {
		n.Save = 0
	}
	if n.EvalEpochs {
		n.Eval = 0
	}
	return n
}

// Weighs says whether the run asks for anything that evaluations decide.
func Weighs(c *config.Config) bool { return c.SaveBest || c.EarlyStoppingPatience > 0 }

// EndedEarly tells whether end is that of a run that early stopping has ended, and whose
// keys would end it there again.
func EndedEarly(c *config.Config, end checkpoint.TrainerState) bool {
	return end.Ended.Early && c.EarlyStoppingPatience > 0 && end.Ended.Best.Since >= c.EarlyStoppingPatience
}
