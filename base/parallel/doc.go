// Package parallel distributes work over goroutines. A Pool spreads the indices of a loop over persistent workers. A
// Queue passes items from many goroutines to one reader, without a bound.
//
// It may import the standard library only; everybody may import it.
//
// Invariants: a call of Pool.Run never needs a free worker. The caller itself takes indices until none is left, then
// waits only for indices that workers have begun, so concurrent and nested calls cannot deadlock. A Queue delivers each
// item once, in the order of Put, and counts an item as present until its reader has finished with it.
package parallel
