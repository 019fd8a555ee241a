// Package human formats text for people: numbers, durations, messages cut to fit a screen, and
// suggestions for misspelled names.
//
// It imports no other package of the module, and all others may import it. Invariant: the functions
// are pure, and Suggest returns nothing for a name that is correct.
package human
