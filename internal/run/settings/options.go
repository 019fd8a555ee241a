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

// Options configures a command's input and output.
type Options struct {
	Stdout, Stderr io.Writer
	JSON           bool // tables and results as JSON on Stdout
	Interactive    bool // Stderr is a terminal: one progress line, redrawn
	Timeline       bool // keep the last complete step in output_dir/timeline.json, for dashboards

	// ProcessEnds says that the process exits after the call. GPUs then leave host memory pinned,
	// since unpinning is slow.
	ProcessEnds bool

	Forecast Forecast // for Plan: the machine to predict, and what to vary

	// World connects the ranks (processes) that train together. With nil or a single rank this process trains alone.
	// All ranks call Train. Train returns on all of them with the same error, or one rank aborts the run for all. The
	// caller closes World.
	World   cluster.World
	Version string // version of the program; all ranks need the same

	Hooks Hooks
}

// Hooks lets tests intervene in a run. Every field may be nil.
type Hooks struct {
	FS         checkpoint.FS             // file system for checkpoints and models
	Metrics    func(io.Writer) io.Writer // wraps metrics.jsonl
	Events     func(io.Writer) io.Writer // wraps TensorBoard's event file
	Trace      func(io.WriteCloser) io.WriteCloser
	Planned    func(run any)              // after planning memory; run is an *Output
	Allocating func()                     // before allocating large memory
	Reading    func(what string)          // while reading data
	Logging    func(step int)             // before logging a step
	Stepped    func(step int)             // after reporting and logging a step
	Sampling   func(step int)             // before sampling
	Packing    func(step int, eval bool)  // before packing a batch
	Symbols    cudart.Symbols             // replaces the CUDA libraries found
	Patience   time.Duration              // replaces how long a stopping run may continue its step; 0: the default
	Room       func() host.Room           // replaces the available host memory
	ReadRates  func() (own, host float64) // replaces the measured read rates of Symbols: own memory and host memory, in bytes per second
	Heartbeat  *Heartbeat                 // between ranks; nil: ranks.DefaultHeartbeat

	Serving func(url string, l net.Listener) // the dashboard is up
}

// ErrInterrupted is the error of work that ended because it was asked to stop.
var ErrInterrupted = errors.New("interrupted")

// ErrResumable is the error of interrupted work that the same command can continue: a run with a saved state, or data
// read in part. It wraps ErrInterrupted.
var ErrResumable = fmt.Errorf("%w; run the same command again to go on", ErrInterrupted)

// Forecast configures the prediction of Plan.
type Forecast struct {
	Machine *rates.Machine // target machine; nil: this machine, without a prediction
	Sweep   string         // varied in a table: batch, seq or depth; empty: nothing
	Hosts   int            // number of hosts, each with one rank; 0: one
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

// WriteWhole writes a small file in the directory atomically: the file is complete or absent.
func (d Dir) WriteWhole(name string, content []byte) error {
	return checkpoint.WriteFile(d.FS, filepath.Join(d.Path, name), content)
}

// The files of a run in its output directory.
const (
	// ConfigFile is the resolved configuration, also in every checkpoint.
	ConfigFile = "config.yaml"
	// MetricsFile has one JSON object per logged step and per evaluation. docs/metrics.md describes them.
	MetricsFile = "metrics.jsonl"
	// RankMetricsFile replaces MetricsFile on ranks other than the first, each on its host.
	RankMetricsFile = "rank-%d.jsonl"
	// LogFile receives notes and errors of ranks other than the first, each on its host.
	LogFile = "rank-%d.log"
	// AlgorithmsFile records the algorithms of the matrix products of a run on a GPU. The same algorithms give the
	// same bits.
	AlgorithmsFile = "matmul_algorithms.json"
	// CurveFile is a picture of the run's losses and learning rate, from metrics.jsonl.
	CurveFile = "loss.svg"
	// SamplesFile has one JSON object per sample: the step, the prompt, and the text that continues it.
	SamplesFile = "samples.jsonl"
	// BoardsFile has the run's ids on servers, so that a resumed run continues there.
	BoardsFile = "boards.json"
	// TimelineFile has the last complete step, in the form of timeline.Step, if Options.Timeline is set.
	TimelineFile = "timeline.json"
	// EndFile marks the output directory of a finished run. It holds the run's final state.
	EndFile = "trainer_state.json"
	// AverageDir is the folder of the averaged model.
	AverageDir = "ema"
)

// AveragesIn returns the folder of the averaged model.
func AveragesIn(c *config.Config) string { return filepath.Join(c.OutputDir, AverageDir) }

// CheckpointName returns the name of the checkpoint after a step.
func CheckpointName(step int) string { return fmt.Sprintf("checkpoint-%d", step) }

// Cadence says when a run saves, evaluates and logs: every given number of steps (0: only at the end), or at the end
// of every epoch.
type Cadence struct {
	Save, Eval, Log        int
	SaveEpochs, EvalEpochs bool
	SaveEvals              bool // also save at every evaluation
}

// CadenceOf returns the cadence of a run of c.
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

// TracksBest reports whether evaluations decide something in the run: the best checkpoint, or early stopping.
func TracksBest(c *config.Config) bool { return c.SaveBest || c.EarlyStoppingPatience > 0 }

// EndedEarly reports whether early stopping ended the run with state end, and c's keys would end it there again.
func EndedEarly(c *config.Config, end checkpoint.TrainerState) bool {
	return end.Ended.Early && c.EarlyStoppingPatience > 0 && end.Ended.Best.Since >= c.EarlyStoppingPatience
}
