// Command testsum reads what `go test -json` prints from its standard input and
// prints what a person wants to know: the packages with their seconds and the 30 slowest
// tests, the slowest first, the output of what failed, every test that was skipped
// with its reason, and the counts.
//
// It may import the standard library only; it is run by .ci/run.
//
// Invariant: it fails when a test or a package failed, when its input cannot be
// read, and when no test ran at all.
package main
