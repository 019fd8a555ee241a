// Package parallel hands work from goroutine to goroutine: a Pool spreads the indices of a loop
// over a fixed set of persistent workers, and a Queue passes items from many goroutines to one,
// without a bound.
//
// It may import the standard library only; everybody may import it.
//
// Invariants: a call of Pool.Run never depends on a worker being free. The caller
// takes indices itself until none is left and then waits only for indices that
// a worker has already begun, so concurrent and nested calls cannot deadlock.
// Items of a Queue are read once, in the order in which they were put, and an
// item counts as there until its reader is done with it.
package parallel
