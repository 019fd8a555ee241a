// Package resume finds where a run starts: at step 0 or from a checkpoint. It compares the configuration with the
// checkpoint's and explains the differences.
//
// It imports open. Invariant: it only reads the directory, and all ranks find the same start.
package resume
