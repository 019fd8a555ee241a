// Package cluster connects the processes of a distributed run: the ranks and their collective operations.
//
// MPI makes a World from processes (Start), and LocalWorlds makes Worlds in one process for tests. The conformance test
// applies to both.
//
// MPI is called without cgo. The library is found at run time, so building needs no MPI. LaunchOf reads the launcher
// and this process's rank from the environment. Find searches for a matching library, and Start initializes it.
// Libraries differ in their handles (library.go): integers in MPICH, addresses of exported objects in Open MPI, small
// constants in the ABI that MPI-5 standardises.
//
// A single goroutine calls MPI and stays on one thread from MPI_Init_thread to MPI_Finalize. It tests the operations in
// flight, which lets MPI make progress. The completion callbacks of operations run on this goroutine and must neither
// block nor take long.
//
// Memory given to an operation belongs to MPI until the operation is complete. A fast network may keep memory
// registered afterwards, and does not notice when Go returns the memory to the system. Buffers larger than a few KiB
// must therefore stay mapped while the process lives, as arenas do.
//
// A process that has started MPI ends with Exit.
//
// Local ranks exchange bytes by copying. They report completion late and in a random order from a seed, as a network
// might. Ranks that begin operations in different orders get an error, where MPI would hang.
//
// It imports purego and golang.org/x/sys/unix, and nothing of this module.
//
// Invariants: gathered data is in rank order, so sums over ranks, which the caller computes, have the same bits on each
// rank. A local rank's memory is written only between the moment when all ranks have begun the operation and the rank's
// completion callback. Between MPI_Init_thread and MPI_Finalize no other thread calls MPI. The garbage collector keeps
// memory given to MPI until MPI no longer uses it.
package cluster
