// Package session trains: it allocates a run's memory, runs the actors, stops, aborts steps and ends the run.
//
// A stop during an evaluation saves the layers as they are. The resumed run repeats the evaluation before anything
// else.
//
// It imports save and generate. Invariant: all memory is freed when Run returns.
package session
