// Package ranks is what training needs of the processes that train together: who they
// are, and how they exchange bytes.
//
// A World is made by MPI (Start), or in one process for tests (LocalWorlds). The
// conformance test holds both to the same.
//
// Local ranks exchange bytes by copying them. What is complete is told late, and in an
// order drawn by a seed, as a network might. Ranks that do not begin the same operations
// in the same order are told so, where MPI would let them wait for ever.
//
// It may import internal/mpi.
//
// Invariants: whatever is put together of what ranks send is in rank order, so that
// sums over ranks, which are made by whoever asked, have the same bits on each. Nothing
// is written to a local rank's memory before that rank and all others have begun the
// operation, nor after the rank was told that it is done.
package ranks
