// Package testkit has what tests of several packages need.
//
// LongOnly, NotShort, Count, Drawn and their like say which tests take long. `go test` leaves
// these out, so that it is done in a few minutes; .ci/run sets MT_LONG=1 and runs them, and draws
// some tests of the largest tables anew each time. MT_LONG=all leaves nothing out. Under the race
// detector, where everything takes ten times as long, some tables are drawn from too, and what is
// too slow is left out. InMemory keeps the temporary files of tests off disks.
//
// NoError and Must end a test where a call that must work fails; Close closes what the test opened.
// Check names each fact of a condition that does not hold. RunPython runs scripts that compare with
// other programs; RunRanks runs programs as several ranks.
//
// Recordings are runs recorded with PyTorch and Transformers, which tests compare with. They lie
// beside the repository, as two folders of cases (a make.py among them says how they were made), and
// may be absent; small ones of the same kind lie in internal/run/testdata/recordings.
//
// It may import the standard library only, and only tests import it. Packages below it have imports of
// their own.
//
// Invariant: a test that is left out, or lacks an interpreter, a launcher or a recording, is skipped
// with the reason. A program that hangs, or has a data race, fails its test.
package testkit
