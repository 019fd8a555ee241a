// Package human formats text for people: numbers, durations, messages cut to fit a screen, and suggestions for
// misspelled names.
//
// It imports nothing of ours; everybody may import it. Invariant: the functions are pure, and Suggest returns nothing
// for a name that is correct.
package human
