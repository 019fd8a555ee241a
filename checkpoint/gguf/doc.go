// Package gguf writes GGUF files, version 3, little endian: the model format of
// llama.cpp. It also reads them back, for tests. Source of the layout:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// It imports base/bf16 alone. What the keys and tensors mean is the caller's. The reader
// (reader.go, decode.go) shares no number of the format with the writer: each has its own, so
// that a wrong number in the writer is not read back as if it were right.
//
// Invariants: a header is computed from sizes alone, before any data is read, so
// a file is written from its start to its end in one pass; its tensors do not overlap.
// What Open accepts lies within the file, tensor by tensor, without overlaps; a damaged
// file is an error and takes no memory without end.
package gguf
