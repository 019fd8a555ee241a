// Package human words numbers for people.
//
// It imports nothing of ours; everybody may import it. Invariant: what it says of
// a number depends on the number alone.
package human
