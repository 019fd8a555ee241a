// Package pytest lets tests run Python scripts that compare with other programs.
//
// It may import the standard library only, and only tests import it.
//
// Invariant: a test for which no interpreter is named, or whose packages are absent,
// is skipped, with the reason.
package pytest
