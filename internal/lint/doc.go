// Package lint holds the rules of the repository that a compiler does not know:
// which package may import which, and no more than it does, where unsafe and protoactor may appear, how
// long a function may be, that every package says what it is for, that nothing
// is left as a note to be done later, and that docs/decisions/README.md lists every page beside it. Its
// tests apply them to this tree.
//
// It may import the standard library only; nothing imports it.
//
// Invariant: the rules are data (Arrows, Limits) and the checks are functions
// of what they are given, so each rule is tested on trees that break it.
package lint
