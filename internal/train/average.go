package train

import (
	"fmt"
	"path/filepath"

	"mt/internal/config"
)

// averageDir is the model of the averages, in the output directory.
const averageDir = "ema"

// averagesIn is the directory of that model.
func averagesIn(c *config.Config) string { return filepath.Join(c.OutputDir, averageDir) }

// writeAverage writes the model of the averages. If none are kept, it removes that of an earlier run. It comes before takeBest, which fills the store with weights
// that they do not belong to: they are those of the last step. Where nothing was updated yet, they are the weights.
func (s *session) writeAverage(extra map[string][]byte) error {
	what := averages
	switch {
	case s.c.EMADecay == 0:
		return s.dropAverage()
	case s.reached.AdamStep == 0:
		what = lowerHalves
	}
	if !s.team.first() {
		return s.serveModel(what)
	}
	if err := s.writeModel(averagesIn(s.c), what, extra); err != nil {
		return err
	}
	fmt.Fprintf(s.o.Stdout, "the average of the weights is written to %s\n", averagesIn(s.c))
	return nil
}

// dropAverage removes the model of averages that an earlier run has left in the output directory, whose own model is about to be replaced.
func (s *session) dropAverage() error {
	dir := averagesIn(s.c)
	if !s.team.first() || !holdsWeights(dir) {
		return nil
	}
	if err := s.fs().RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the average of an earlier run's weights: %w", err)
	}
	fmt.Fprintf(s.o.Stdout, "%s, the average of an earlier run's weights, is removed\n", dir)
	return nil
}
