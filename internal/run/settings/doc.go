// Package settings holds what the user asked for: a command's options, the names of the files in an output directory,
// and settings derived from the keys alone, such as the optimizer. A Throttle, set by MT_THROTTLE, slows copies and
// updates down, so that a run on the CPU waits like a run on a GPU.
//
// It is the first stage of a run. It imports internal/run/config, whose Config holds the keys. Invariants: no stage
// writes to a command's Config; a stage that resolves a key copies the Config first. A Throttle changes no computed
// bit.
package settings
