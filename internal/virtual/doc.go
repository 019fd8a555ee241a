// Package virtual is a clock that is not the machine's: what happens on it takes
// the time that it is said to take, and no longer to compute than that needs.
//
// Works that go on at the same time share resources, such as the bandwidth of the
// host's memory, and slow each other down where a resource has not enough for all.
//
// It imports the standard library only. Invariant: the same calls give the same
// times; nothing depends on the machine's clock or on goroutines.
package virtual
