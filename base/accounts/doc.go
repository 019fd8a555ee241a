// Package accounts names the uses of memory and counts the bytes held for each use, on a device and in host arenas.
//
// It may import the standard library only.
//
// Invariant: if the same bytes are counted and later subtracted, only the peaks have changed.
package accounts
