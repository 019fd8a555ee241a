// Package numa knows the nodes of a machine whose memory is nearer to some
// processors than to others: which there are, how memory is laid out over them, and
// how work goes to threads that run beside the memory it needs.
//
// It may import internal/parallel, golang.org/x/sys and unsafe.
//
// Invariant: it decides where bytes lie and who works on them, never what is
// computed. What the system refuses becomes a note, and everything goes on as on one node.
package numa
