// Package byteplane makes numbers smaller without losing a bit, fast enough for a disk: bytes are put apart by their place in
// a word of four, and those planes that say little (signs and exponents, codes of eight bits) are written in a Huffman code.
// All others are copied. It asks for no shape: of fp32 one plane in four is worth coding, of bf16 two, of codes all.
//
// It imports nothing of ours.
//
// Invariant: what Encode made is decoded to the bytes that it was made of, and anything else is an error or other bytes, never a panic.
package byteplane
