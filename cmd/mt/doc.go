// Command mt trains large language models in full precision.
//
// It turns command lines into calls. internal/run/config reads the user's settings, internal/run/machine finds devices,
// internal/run does everything that opens a model, and bench measures. The command may import everything.
//
// Invariant: this package decides only how a command line is read, where output goes, and the exit code. Exit codes
// are 0 (done), 1 (failed), 2 (bad usage or configuration) and 130 (interrupted).
package main
