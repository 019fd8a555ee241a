package train

import (
	"mt/checkpoint"
	"mt/internal/config"
)

// cadence is how often a run saves, evaluates and logs: every so many steps (0:
// not before its end), or at the end of every epoch.
type cadence struct {
	save, eval, log        int
	saveEpochs, evalEpochs bool
	saveEvals              bool // at every evaluation too
}

// cadenceOf is how often a run of c does so.
func cadenceOf(c *config.Config) cadence {
	n := cadence{save: c.SaveSteps.Of(c.MaxSteps), eval: c.EvalSteps.Of(c.MaxSteps), log: c.LoggingSteps.Of(c.MaxSteps),
		saveEpochs: c.SaveStrategy == "epoch", evalEpochs: c.EvalStrategy == "epoch", saveEvals: c.SaveBest}
	if n.saveEpochs {
		n.save = 0
	}
	if n.evalEpochs {
		n.eval = 0
	}
	return n
}

// weighs says whether the run asks for anything that evaluations decide.
func weighs(c *config.Config) bool { return c.SaveBest || c.EarlyStoppingPatience > 0 }

// endedEarly tells whether end is that of a run that early stopping has ended, and whose
// keys would end it there again.
func endedEarly(c *config.Config, end checkpoint.TrainerState) bool {
	return end.Ended.Early && c.EarlyStoppingPatience > 0 && end.Ended.Best.Since >= c.EarlyStoppingPatience
}
