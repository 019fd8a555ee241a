// Package run turns a configuration into a run. A run is a chain of stages, each a package below: settings,
// open, resume, resolve, session. A stage takes the values of earlier stages and returns one, which does not
// change any more and owns what the stage opened. Training, evaluation and dry runs are the chain cut at
// different points.
//
// It stands between cmd and bench, which call it, and actors; it may import
// everything below. Invariant: nothing is allocated and nothing is written
// before the whole configuration has been checked and the plan fits.
package run
