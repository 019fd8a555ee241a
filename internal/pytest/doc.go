// Package pytest lets tests run Python scripts that compare with other programs.
//
// It may import the standard library only, and only tests import it.
//
// Invariant: a test whose interpreter or packages are absent is skipped, with the
// reason.
package pytest
