// Package session trains: it takes the memory of a run, runs the actors, stops, gives up steps and ends
// the run.
//
// A stop during an evaluation saves the layers as they are; the resumed run repeats the evaluation
// before anything else.
//
// It imports save and generate. Invariant: all memory is given back when Run returns.
package session
