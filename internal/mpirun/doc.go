// Package mpirun lets tests run programs as several ranks.
//
// It may import the standard library only, and only tests import it.
//
// Invariant: a test for which no mpirun is found is skipped, with the reason, and a
// program that hangs ends and fails its test. So does one with a data race.
package mpirun
