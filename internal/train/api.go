package train

import (
	"errors"
	"io"

	"mt/checkpoint"
	"mt/cudart"
)

// Options say where a command writes and how.
type Options struct {
	Stdout, Stderr io.Writer
	JSON           bool // tables and results as JSON on Stdout
	Interactive    bool // Stderr is a terminal: one progress line, redrawn

	paper bool // nothing will run: a plan for a GPU that is not here is of use
	hooks hooks
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
}

// ErrInterrupted is the error of a run that was asked to stop, after its state
// has been saved.
var ErrInterrupted = errors.New("interrupted; run the same command again to go on")
