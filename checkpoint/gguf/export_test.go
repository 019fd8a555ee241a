package gguf

// Half is half, for tests that read files back by a package of their own.
var Half = half
