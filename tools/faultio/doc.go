// Package faultio is for tests of a program as a whole: it runs a command under a
// tracer that numbers the system calls of all its threads and spoils one of them,
// as a failing disk, a full one or a kill would. The tracer is the C program
// in c/, compiled where there is a compiler; where there is none, or tracing is
// forbidden, the test is skipped with the reason.
//
// It imports nothing of ours.
//
// Invariant: the program runs as it is, not a build of it that was made to fail;
// the calls of the table in c/calls.h that it makes below the directory are numbered,
// by any thread, from any library.
package faultio
