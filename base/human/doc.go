// Package human words things for people: numbers, durations, messages that are cut to a screen, and
// the name that was probably meant in place of one that is not known.
//
// It imports nothing of ours; everybody may import it. Invariant: what it says
// depends on what it is given alone, and a name that is right has no suggestion.
package human
