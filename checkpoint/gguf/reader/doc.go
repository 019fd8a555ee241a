// Package reader reads GGUF files, version 3, little endian, for the tests of
// what writes them. Source of the layout:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// It may import checkpoint/gguf, for its types alone: the numbers of the format
// are written here a second time, so that a wrong number in the writer is not
// read back as if it were right.
//
// Invariant: what Open accepts lies within the file, tensor by tensor, without
// overlaps; a damaged file is an error and takes no memory without end.
package reader
