package settings

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"mt/base/cluster"
	"mt/checkpoint"
	"mt/cudart"
	"mt/host"
	"mt/internal/run/config"
	"mt/plan/rates"
)

// Options say where a command writes and how.
type Options struct {
	Stdout, Stderr io.Writer
	JSON           bool // tables and results as JSON on Stdout
	Interactive    bool // Stderr is a terminal: one progress line, redrawn
	Timeline       bool // the last complete step is kept in output_dir/timeline.json, for those who watch

	// ProcessEnds: the process ends when the call returns. GPUs then leave host memory pinned, which takes long to undo.
	ProcessEnds bool

	Forecast Forecast // of Plan: on which machine, and what else to try

	// World is the ranks that train together; nil, or of one: this process trains alone. All of them
	// call Train, which returns on all of them together, with the same error, or one ends the
	// run for all. The caller closes it.
	World   cluster.World
	Version string // of the program, which all ranks must have alike

	Hooks Hooks
}

// Hooks are where tests reach into a run. All may be nil.
type Hooks struct {
	FS         checkpoint.FS             // what checkpoints and models are written through
	Metrics    func(io.Writer) io.Writer // what metrics.jsonl is written through
	Events     func(io.Writer) io.Writer // what TensorBoard's event file is written through
	Trace      func(io.WriteCloser) io.WriteCloser
	Planned    func(run any)              // memory is planned; run is an *Output
	Allocating func()                     // big memory is about to be taken
	Reading    func(what string)          // data is being read
	Logging    func(step int)             // a step is about to be logged
	Stepped    func(step int)             // a step is reported and logged
	Sampling   func(step int)             // samples are about to be made
	Packing    func(step int, eval bool)  // a batch is about to be packed
	Symbols    cudart.Symbols             // CUDA, in place of what is found
	Patience   time.Duration              // in place of the time for which a run that is to stop goes on with its step; 0: it is not replaced
	Room       func() host.Room           // host memory, in place of what is available
	ReadRates  func() (own, host float64) // of Symbols, in place of what is measured: bytes a second from its own and from host memory
	Heartbeat  *Heartbeat                 // between ranks; nil: ranks.DefaultHeartbeat

	Serving func(url string, l net.Listener) // the dashboard is being served
}

// ErrInterrupted is the error of work that was asked to stop.
var ErrInterrupted = errors.New("interrupted")

// ErrResumable is the ErrInterrupted of work that the same command goes on with: a run
// whose state has been saved, or data that was read in part.
var ErrResumable = fmt.Errorf("%w; run the same command again to go on", ErrInterrupted)

// Forecast says what Plan is to predict.
type Forecast struct {
	Machine *rates.Machine // where the run is to be; nil: here, and nothing is predicted
	Sweep   string         // what to vary in a table: batch, seq or depth; empty: nothing
	Hosts   int            // how many, each with a rank; 0: one
}

// Heartbeat sets the heartbeat interval and the timeouts between ranks outside the exchange of gradients and weights.
type Heartbeat struct {
	Interval time.Duration // between two signs of life
	Timeout  time.Duration // a rank without a sign for this long counts as gone
	// ExitWait is how long a rank that cannot continue waits for the others at the end, before it aborts the run
	// for all. An error that all ranks find, such as a mistake in the configuration, is then printed once.
	ExitWait time.Duration
	After    func(time.Duration) <-chan time.Time
}

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

// TracksBest says whether the run asks for anything that evaluations decide.
func TracksBest(c *config.Config) bool { return c.SaveBest || c.EarlyStoppingPatience > 0 }

// EndedEarly tells whether end is that of a run that early stopping has ended, and whose
// keys would end it there again.
func EndedEarly(c *config.Config, end checkpoint.TrainerState) bool {
	return end.Ended.Early && c.EarlyStoppingPatience > 0 && end.Ended.Best.Since >= c.EarlyStoppingPatience
}
