// Package mpi calls an MPI library without cgo. The library is found at run time;
// nothing of MPI is needed to build.
//
// LaunchOf reads from the environment who started this process and as which rank.
// Find searches for a library that goes with it, Start initialises it. A World makes
// communicators (NewComm); their operations return at once and call a function when
// they are done. The libraries differ in what their handles are (library.go): integers in
// MPICH, addresses of exported objects in Open MPI, small constants in the ABI that
// MPI-5 standardises.
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
// It imports purego and golang.org/x/sys/unix, and nothing of this module.
//
// Invariant: between MPI_Init_thread and MPI_Finalize no other thread calls MPI, and
// the collector keeps what was given to MPI until it is done with it.
package mpi
