package settings

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"mt/checkpoint"
	"mt/cudart"
	"mt/host"
	"mt/host/optim"
	"mt/internal/ranks"
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

	// Watch, which may be nil, makes of a run's optimizer the one that is used. It must
	// keep the same planes and make the same updates: benchmarks look through it at what a
	// run holds and moves.
	Watch func(optim.Optimizer) optim.Optimizer

	// World is the ranks that train together; nil, or of one: this process trains alone. All of them
	// call Train, which returns on all of them together, with the same error, or one ends the
	// run for all. The caller closes it.
	World   ranks.World
	Version string // of the program, which all ranks must have alike

	Hooks Hooks
}

// Hooks are where tests reach into a run. All may be nil.
type Hooks struct {
	FS         checkpoint.FS             // what checkpoints and models are written through
	Metrics    func(io.Writer) io.Writer // what metrics.jsonl is written through
	Events     func(io.Writer) io.Writer // what TensorBoard's event file is written through
	Trace      func(io.WriteCloser) io.WriteCloser
	Planned    func(run any)             // memory is planned; run is an *Output
	Allocating func()                    // big memory is about to be taken
	Reading    func(what string)         // data is being read
	Logging    func(step int)            // a step is about to be logged
	Stepped    func(step int)            // a step is reported and logged
	Sampling   func(step int)            // samples are about to be made
	Packing    func(step int, eval bool) // a batch is about to be packed
	Symbols    cudart.Symbols            // CUDA, in place of what is found
	Patience   time.Duration             // in place of the time for which a run that is to stop goes on with its step; 0: it is not replaced
	Room       func() host.Room          // host memory, in place of what is available
	Beat       *Beat                     // of the ranks' pulse

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

// Beat says how long ranks wait for each other where they do not exchange what they compute.
type Beat struct {
	Every    time.Duration // between signs of life
	Patience time.Duration // after so long without a sign a rank is taken to be gone
	// ending is how long a rank that cannot go on waits for the others to come where it can
	// tell them. What all of them find wrong, such as a mistake in the configuration, is so told
	// once; what one of them finds ends the run soon.
	Ending time.Duration
	After  func(time.Duration) <-chan time.Time
}
