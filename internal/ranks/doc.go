// Package ranks is what training needs of the processes that train together: who they
// are, and how they exchange bytes.
//
// A World is made by MPI (Start), or in one process for tests (ranks/local). The
// conformance test holds both to the same.
//
// It may import internal/mpi.
//
// Invariant: whatever is put together of what ranks send is in rank order, so that
// sums over ranks, which are made by whoever asked, have the same bits on each.
package ranks
