package train

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

	hooks hooks
}

// hooks are where tests reach into a run. All may be nil.
type hooks struct {
	fs         checkpoint.FS             // what checkpoints and models are written through
	metrics    func(io.Writer) io.Writer // what metrics.jsonl is written through
	events     func(io.Writer) io.Writer // what TensorBoard's event file is written through
	trace      func(io.WriteCloser) io.WriteCloser
	planned    func(run any)             // memory is planned; run is an *Output
	allocating func()                    // big memory is about to be taken
	reading    func(what string)         // data is being read
	logging    func(step int)            // a step is about to be logged
	stepped    func(step int)            // a step is reported and logged
	sampling   func(step int)            // samples are about to be made
	packing    func(step int, eval bool) // a batch is about to be packed
	symbols    cudart.Symbols            // CUDA, in place of what is found
	patience   time.Duration             // in place of the time for which a run that is to stop goes on with its step; 0: it is not replaced
	room       func() host.Room          // host memory, in place of what is available
	beat       *beat                     // of the ranks' pulse

	serving func(url string, l net.Listener) // the dashboard is being served
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
