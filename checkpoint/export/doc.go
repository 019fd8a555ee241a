// Package export writes a model directory in the form other programs load:
// GGUF for llama.cpp, and safetensors cut and typed anew for everything that
// reads Hugging Face's layout.
//
// It imports checkpoint, checkpoint/gguf, model, base/files and base/human. What is particular to a
// family of models, in the words of config.json and of llama.cpp, is one entry of
// the table in families.go.
//
// Invariant: the output appears under its name complete or not at all, and it
// means what the model directory means: what the other program cannot express is
// an error or a note, never left out in silence.
package export
