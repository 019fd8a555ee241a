// Package watch shows runs in a browser: a page and a stream of events, made of the
// files in their output directories. A run that is under way, one that ended long ago
// and several side by side are the same to it.
//
// It may import the standard library and helpers only.
//
// Invariant: it only reads, and a viewer that is slow, silent or gone holds up nobody
// but itself.
package watch
