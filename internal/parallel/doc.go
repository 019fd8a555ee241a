// Package parallel spreads the indices of a loop over a fixed set of persistent
// worker goroutines.
//
// It may import the standard library only; everything below the actors may
// import it.
//
// Invariant: a call of Run never depends on a worker being free. The caller
// takes indices itself until none is left and then waits only for indices that
// a worker has already begun, so concurrent and nested calls cannot deadlock.
package parallel
