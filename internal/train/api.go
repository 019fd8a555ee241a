package train

import (
	"errors"
	"fmt"
	"io"

	"mt/checkpoint"
	"mt/cudart"
	"mt/host"
)

// Options say where a command writes and how.
type Options struct {
	Stdout, Stderr io.Writer
	JSON           bool // tables and results as JSON on Stdout
	Interactive    bool // Stderr is a terminal: one progress line, redrawn

	paper    bool              // nothing will run: a plan for a GPU that is not here is of use
	sketch   bool              // the plan is made of the configuration alone: no data, no output_dir
	unusable map[string]string // checkpoints that are skipped, with the reason
	hooks    hooks
	// orCheckpoint: a run's output_dir without a model stands for its newest
	// checkpoint.
	orCheckpoint bool
}

// hooks are where tests reach into a run. All may be nil.
type hooks struct {
	fs         checkpoint.FS             // what checkpoints and models are written through
	metrics    func(io.Writer) io.Writer // what metrics.jsonl is written through
	planned    func(*job)                // memory is planned
	allocating func()                    // big memory is about to be taken
	reading    func(what string)         // data is being read
	logging    func(step int)            // a step is about to be logged
	stepped    func(step int)            // a step is reported and logged
	packing    func(step int, eval bool) // a batch is about to be packed
	symbols    cudart.Symbols            // CUDA, in place of what is found
	room       func() host.Room          // host memory, in place of what is available
}

// ErrInterrupted is the error of work that was asked to stop.
var ErrInterrupted = errors.New("interrupted")

// ErrResumable is ErrInterrupted where what was done is kept: a run whose state
// has been saved, data that was read in part.
var ErrResumable = fmt.Errorf("%w; run the same command again to go on", ErrInterrupted)
