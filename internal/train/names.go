package train

import (
	"fmt"
	"path/filepath"

	"mt/checkpoint"
	"mt/internal/config"
)

// outDir is a run's output directory.
type outDir struct {
	path string
	fs   checkpoint.FS
}

// writeWhole writes a small file of the directory so that it is there
// whole or not at all, whatever happens.
func (d outDir) writeWhole(name string, content []byte) error {
	return checkpoint.WriteFile(d.fs, filepath.Join(d.path, name), content)
}

// The files of a run in its output directory.
const (
	// configFile is the resolved configuration, also in every checkpoint.
	configFile = "config.yaml"
	// metricsFile has one JSON object per logged step, and one per evaluation.
	// docs/metrics.md says what is in them.
	metricsFile = "metrics.jsonl"
	// rankMetricsFile is the name of what a rank but the first has in its place, on its host.
	rankMetricsFile = "rank-%d.jsonl"
	// logFile is the name of what a rank but the first writes its notes and errors to, on its host.
	logFile = "rank-%d.log"
	// algorithmsFile is where a run on a GPU records how its matrix products were
	// computed: the same bits come from the same algorithms.
	algorithmsFile = "matmul_algorithms.json"
	// curveFile is a picture of the run: its losses and learning rate, from metrics.jsonl.
	curveFile = "loss.svg"
	// samplesFile has one JSON object for every sample: the step after which it was made, the
	// prompt, and the text that continues it.
	samplesFile = "samples.jsonl"
	// boardsFile names a run where it is shown, so that a resumed run goes on there.
	boardsFile = "boards.json"
	// timelineFile has the last complete step, as timeline.Step says, where Options.Timeline
	// asks for it.
	timelineFile = "timeline.json"
	// endFile marks the output directory of a run that is done. It holds the state of the
	// run whose model is there.
	endFile = "trainer_state.json"
	// averageDir is the model of the averages.
	averageDir = "ema"
)

// averagesIn is the directory of that model.
func averagesIn(c *config.Config) string { return filepath.Join(c.OutputDir, averageDir) }

// checkpointName is the name of the checkpoint after a step.
func checkpointName(step int) string { return fmt.Sprintf("checkpoint-%d", step) }
