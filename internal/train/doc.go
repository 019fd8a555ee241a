// Package train turns a configuration into work: it opens the model, the data
// and the device, plans memory, runs the pipeline and writes what a run leaves
// behind. Every command of mt is a call of one function here.
//
// It stands between cmd and bench, which call it, and actors; it may import
// everything below. Invariant: nothing is allocated and nothing is written
// before the whole configuration has been checked and the plan fits.
package train
