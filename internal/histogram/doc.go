// Package histogram draws counts as bars, in text and as a picture in SVG.
//
// It imports nothing of ours; whoever shows a distribution imports it.
//
// Invariant: what is drawn is what was given: no count is scaled, cut or left
// out, and equal bars give equal pictures.
package histogram
