// Package near finds, among the names that there are, the one that was probably meant.
//
// It imports nothing of ours. Invariant: a name that is right has no suggestion.
package near
