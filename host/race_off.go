//go:build !race

package host

func announceRead[E any](*E, int) {}

func announceWrite[E any](*E, int) {}
