// Package timeline records what happens when in a run. A track is a stream, an actor or a slot. The package records the
// spans of work on each track, with their steps, and the flows between them. It holds the last complete step for
// viewers and writes the whole run as a trace for Perfetto.
//
// It imports nothing of this module and reads no clock. Times come from the caller, so predicted and measured runs are
// drawn alike. Invariant: recording never waits for a disk, and the memory held is bounded.
package timeline
