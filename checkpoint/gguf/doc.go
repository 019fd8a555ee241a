// Package gguf writes GGUF files, version 3, little endian: the model format of
// llama.cpp. Source of the layout:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// It imports nothing of ours. What the keys and tensors mean is the caller's.
//
// Invariant: a header is computed from sizes alone, before any data is read, so
// a file is written from its start to its end in one pass; its tensors do not overlap.
// Tests read it back by checkpoint/gguf/reader.
package gguf
