package gguf

// Half gives tests of package gguf_test access to half.
var Half = half
