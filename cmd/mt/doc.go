// Command mt trains large language models in full precision.
//
// It turns command lines into calls: of internal/run/machine for what there is to
// compute on, of internal/run for everything that opens a model, of bench for
// measurements, of internal/run/config for reading what the user says. It may import
// everything. Invariant: nothing is decided here
// but how a command line is read, where output goes and what the exit code is:
// 0 done, 1 failed, 2 bad usage or configuration, 130 interrupted.
package main
