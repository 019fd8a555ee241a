package settings

import (
	"fmt"
	"path/filepath"

	"mt/checkpoint"
	"mt/internal/config"
)

// Dir is a run's output directory.
type Dir struct {
	Path string
	FS   checkpoint.FS
}

// WriteWhole writes a small file of the directory so that it is there
// whole or not at all, whatever happens.
func (d Dir) WriteWhole(name string, content []byte) error {
	return checkpoint.WriteFile(d.FS, filepath.Join(d.Path, name), content)
}

// The files of a run in its output directory.
const (
	// ConfigFile is the resolved configuration, also in every checkpoint.
	ConfigFile = "config.yaml"
	// MetricsFile has one JSON object per logged step, and one per evaluation.
	// docs/metrics.md says what is in them.
	MetricsFile = "metrics.jsonl"
	// RankMetricsFile is the name of what a rank but the first has in its place, on its host.
	RankMetricsFile = "rank-%d.jsonl"
	// LogFile is the name of what a rank but the first writes its notes and errors to, on its host.
	LogFile = "rank-%d.log"
	// AlgorithmsFile is where a run on a GPU records how its matrix products were
	// computed: the same bits come from the same algorithms.
	AlgorithmsFile = "matmul_algorithms.json"
	// CurveFile is a picture of the run: its losses and learning rate, from metrics.jsonl.
	CurveFile = "loss.svg"
	// SamplesFile has one JSON object for every sample: the step after which it was made, the
	// prompt, and the text that continues it.
	SamplesFile = "samples.jsonl"
	// BoardsFile names a run where it is shown, so that a resumed run goes on there.
	BoardsFile = "boards.json"
	// TimelineFile has the last complete step, as timeline.Step says, where Options.Timeline
	// asks for it.
	TimelineFile = "timeline.json"
	// EndFile marks the output directory of a run that is done. It holds the state of the
	// run whose model is there.
	EndFile = "trainer_state.json"
	// AverageDir is the model of the averages.
	AverageDir = "ema"
)

// AveragesIn is the directory of that model.
func AveragesIn(c *config.Config) string { return filepath.Join(c.OutputDir, AverageDir) }

// CheckpointName is the name of the checkpoint after a step.
func CheckpointName(step int) string { return fmt.Sprintf("checkpoint-%d", step) }
