// Package accounts says what memory is for, and counts how much of it is held for
// what: on a device, and in the arenas of the host.
//
// It may import the standard library only.
//
// Invariant: what was counted and counted back leaves nothing behind but peaks.
package accounts
