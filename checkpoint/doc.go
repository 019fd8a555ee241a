// Package checkpoint reads and writes models and training states on disk:
// safetensors in Hugging Face's layout, the optimizer's state beside it, atomic
// saves and exact resumes. What a directory holds beside the trained parameters
// is copied through, byte for byte.
//
// It imports model, host/optim, internal/files and internal/human; the memory of a
// layer comes as a Layer, which views what package host owns. Files are read and
// written in pieces, so there is never a second copy of the model in memory.
//
// Invariant: a directory called checkpoint-N is complete. It is written under
// another name, its manifest last, and renamed once everything is on disk, also what
// was linked into it and not written; what
// Load reads back is bit for bit what was saved. A model that takes the place of
// another is shown in one step.
package checkpoint
