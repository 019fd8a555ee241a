// Package resume finds where a run begins: from nothing, or from a checkpoint, of which it says what
// differs and what that means.
//
// It imports open. Invariant: the directory is only read, and all ranks find the same start.
package resume
