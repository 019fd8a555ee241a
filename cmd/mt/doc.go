// Command mt trains large language models in full precision.
//
// It turns command lines into calls: to internal/run/machine for devices, to internal/run for everything that opens a
// model, to bench for measurements, and to internal/run/config for the user's settings. It may import everything.
//
// Invariant: this package decides only how a command line is read, where output goes, and the exit code: 0 done, 1
// failed, 2 bad usage or configuration, 130 interrupted.
package main
