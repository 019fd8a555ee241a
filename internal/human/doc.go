// Package human words numbers, and cuts messages, for people.
//
// It imports nothing of ours; everybody may import it. Invariant: what it says
// depends on what it is given alone.
package human
