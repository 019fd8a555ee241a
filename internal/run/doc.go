// Package run turns a configuration into a run. A run is a chain of stages, each a package below: settings, open,
// resume, resolve, session. A stage takes the values of earlier stages and returns one value. That value does not
// change and owns everything the stage opened. Training, evaluation and dry runs cut the chain at different points.
//
// It stands between its callers cmd and bench and the package actors; it may import everything below. Invariant: it
// allocates and writes nothing before the whole configuration is checked and the plan fits.
package run
