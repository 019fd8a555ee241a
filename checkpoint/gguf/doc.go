// Package gguf writes GGUF files, llama.cpp's model format: version 3, little endian. It also reads them back, for
// tests. Source of the layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// It imports base/bf16 alone. The caller decides what the keys and tensors mean. Reader (reader.go, decode.go) and
// writer define every number of the format separately, so a wrong number in the writer is not read back as if it
// were right.
//
// Invariants: Header needs only sizes and no data, so a file is written in one pass from start to end. Tensors do
// not overlap. Open accepts a file only if each tensor lies within the file and no two overlap. A damaged file is
// an error and takes bounded memory.
package gguf
