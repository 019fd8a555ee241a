// Package testkit has helpers for the tests of several packages.
//
// LongOnly, NotShort, Count, Drawn and similar functions mark tests that take long. `go test` skips these, so that it
// ends in a few minutes. .ci/run sets MT_LONG=1 and runs them; from the largest tables it draws some tests by their
// names. MT_LONG=all skips nothing. Under the race detector everything takes ten times as long. There some tables
// are drawn from too, and tests that are too slow are skipped. InMemory keeps the temporary files of tests in memory.
//
// NoError and Must end a test when a call fails that must not fail; Close closes what the test opened. Check reports
// each value (Fact) that is not the expected one. RunPython runs scripts that compare with other programs; RunRanks
// runs programs as several ranks.
//
// Recordings are runs recorded with PyTorch and Transformers, which tests compare with. They are in two folders of
// cases beside the repository, which may be missing; make.py there says how they were made. Small ones of the same
// kind are in internal/run/testdata/recordings.
//
// It may import the standard library only, and only tests import it. Packages below it have their own imports.
//
// Invariant: a test that is left out, or lacks an interpreter, a launcher or a recording, is skipped with the reason.
// A program that hangs or has a data race fails its test.
package testkit
