// Package timeline keeps what happened when in a run: which track (a stream, an actor, a
// slot) was taken from when to when, by what and for which step, and what led from one to
// another. It holds the last complete step for viewers, and writes the whole run as a trace
// that Perfetto opens.
//
// It imports nothing of ours and reads no clock: times come from those who tell it, so a
// predicted run is drawn as a measured one is. Invariant: telling it something never waits
// for a disk, and what it holds is bounded.
package timeline
