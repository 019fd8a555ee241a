// Package facts compares several facts of one result in a test, so that a test that
// fails says which of them is wrong.
//
// It may import the standard library only, and only tests import it.
//
// Invariant: each wrong fact is an error of its own, with its name, its value and the
// value that was wanted.
package facts
