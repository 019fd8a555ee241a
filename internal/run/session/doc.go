// Package session trains: it takes the memory of a run, runs the actors, stops, gives up steps and ends
// the run.
//
// It imports save and generate. Invariant: all memory is given back when Run returns.
package session
