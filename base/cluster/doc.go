// Package cluster is what training needs of the processes that train together: who they
// are, and how they exchange bytes.
//
// A World is made by MPI (Start), or in one process for tests (LocalWorlds). The
// conformance test holds both to the same.
//
// MPI is called without cgo. The library is found at run time; nothing of MPI is needed to
// build. LaunchOf reads from the environment who started this process and as which rank.
// Find searches for a library that goes with it, Start initialises it. The libraries differ
// in what their handles are (library.go): integers in MPICH, addresses of exported objects
// in Open MPI, small constants in the ABI that MPI-5 standardises.
//
// MPI is called from one goroutine only, which stays on one thread from MPI_Init_thread
// to MPI_Finalize. It tests what is under way, and so lets MPI make progress; functions
// that wait for an operation run on it and must neither block nor take long.
//
// Memory that is given to an operation is MPI's until the operation is done. A fast
// network may keep memory registered after that, and does not see that Go returned it
// to the system: what is larger than a few KiB is to lie in memory that stays mapped
// while the process lives, as arenas do.
//
// A process that has started MPI ends by Exit.
//
// Local ranks exchange bytes by copying them. What is complete is told late, and in an
// order drawn by a seed, as a network might. Ranks that do not begin the same operations
// in the same order are told so, where MPI would let them wait for ever.
//
// It imports purego and golang.org/x/sys/unix, and nothing of this module.
//
// Invariants: whatever is put together of what ranks send is in rank order, so that
// sums over ranks, which are made by whoever asked, have the same bits on each. Nothing
// is written to a local rank's memory before that rank and all others have begun the
// operation, nor after the rank was told that it is done. Between MPI_Init_thread and
// MPI_Finalize no other thread calls MPI, and the collector keeps what was given to MPI
// until it is done with it.
package cluster
