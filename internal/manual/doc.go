// Package manual writes manual pages, as man(1) shows them, of a tree of commands.
//
// It imports cobra and nothing of ours. Invariant: a page says what --help says, in its order; pages of the same
// program are the same bytes.
package manual
