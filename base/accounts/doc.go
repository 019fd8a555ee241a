// Package accounts names the uses of memory and counts the bytes held for each use, on a device and in host arenas.
//
// It may import the standard library only.
//
// Invariant: memory that is counted and then counted back changes only the peaks.
package accounts
