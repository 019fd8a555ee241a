// Package svg writes XML piece by piece, for pictures in SVG.
//
// It may import the standard library only; everybody may import it. Invariant: a text
// among the arguments is escaped, whatever is in it.
package svg
