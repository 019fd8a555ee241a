// Package watch shows runs in a browser: a page and a stream of events, made from the files in their output
// directories. It treats running and finished runs alike, and shows several runs side by side.
//
// It may import the standard library and helpers only.
//
// Invariant: the package only reads. A slow, silent or disconnected viewer delays nobody else.
package watch
