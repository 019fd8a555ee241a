// Package streams is the table of everything in the device contract that is not
// an operation's result: memory and its budget, streams, events, notifications,
// errors. Every device is tested with it, as with the table of device/conformance/operations.
//
// It imports device; tests import it. Invariant: it uses a device by its contract
// alone, and time by order alone, never by the clock.
package streams
