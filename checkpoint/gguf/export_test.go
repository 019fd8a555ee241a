package gguf

// Half is half, for tests.
var Half = half
