package train

import (
	"errors"
	"io"
)

// Options say where a command writes and how.
type Options struct {
	Stdout, Stderr io.Writer
	JSON           bool // tables and results as JSON on Stdout
	Interactive    bool // Stderr is a terminal: one progress line, redrawn
}

// ErrInterrupted is the error of a run that was asked to stop, after its state
// has been saved.
var ErrInterrupted = errors.New("interrupted; run the same command again to go on")
