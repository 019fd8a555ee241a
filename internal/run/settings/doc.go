// Package settings holds what the user asked of a run: the options of a command, the names of the files
// in an output directory, and what follows from the keys alone, such as the optimizer and how often
// something is saved. A Throttle, which MT_THROTTLE sets, makes copies and updates slower than they could
// be, so that a run on the CPU waits for them as a run on a GPU does.
//
// It is the first stage of a run. It imports internal/config, whose Config holds the keys. Invariants:
// no stage writes to the Config that a command was given; a stage that settles a key copies it first.
// A Throttle changes no bit of what is computed.
package settings
