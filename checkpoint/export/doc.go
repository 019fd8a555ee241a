// Package export writes a model directory in forms that other programs load: GGUF for llama.cpp, and safetensors
// with other shards and types for all readers of Hugging Face's layout.
//
// It imports checkpoint, checkpoint/gguf, model, base/files and base/human. The table in families.go has one entry
// for each family of models, with the names that config.json and llama.cpp use.
//
// Invariant: the output appears under its name complete or not at all, and describes the same model as the
// directory. A property that the other program cannot express is an error or a note; it is never dropped silently.
package export
