// Package long says which tests take long. `go test` leaves them out, so that it is
// done in a few minutes; .ci/run sets MT_LONG=1 and runs them, and of the largest tables
// some tests that are drawn anew each time. MT_LONG=all leaves nothing out. Under the race
// detector, where everything takes ten times as long, some tables are drawn from too, and what is
// too slow for it is left out. InMemory keeps the temporary files of tests off disks.
//
// It may import the standard library only, and only tests import it.
//
// Invariant: what is left out is a skipped test that says how to run it.
package long
