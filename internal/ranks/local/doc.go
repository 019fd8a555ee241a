// Package local makes ranks in one process, for tests: a World for each, which
// exchange bytes by copying them.
//
// What is complete is told late, and in an order drawn by a seed, as a network might.
// Ranks that do not begin the same operations in the same order are told so, where MPI
// would let them wait for ever.
//
// It may import internal/ranks, and only tests import it.
//
// Invariant: nothing is written to a rank's memory before that rank and all others have
// begun the operation, nor after the rank was told that it is done.
package local
