// Package queue hands items from many goroutines to one, without a bound.
//
// It may import the standard library only; everybody may import it.
//
// Invariant: items are read once, in the order in which they were put, and an
// item counts as there until its reader is done with it.
package queue
