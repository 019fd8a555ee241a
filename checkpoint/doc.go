// Package checkpoint reads and writes models and training states on disk:
// safetensors in Hugging Face's layout, the optimizer's state beside it, atomic
// saves and exact resumes. What a directory holds beside the trained parameters
// is copied through, byte for byte.
//
// A state on a disk that can be linked is not written again (linked.go). Its extent is a file of its own,
// already in the form of a checkpoint's optimizer file. Saving pins the file, syncs it and gives it a
// second name. The next write of the layer goes into a new file.
//
// A checkpoint counts as good once a later step has a finite loss and gradient. Until then the older one
// is kept. The size of a checkpoint follows from the layouts (WriterOptions.CheckpointBytes).
//
// It imports model, host/optim, base/files and base/human; the memory of a
// layer comes as a Layer, which views what package host owns. Files are read and
// written in pieces, so there is never a second copy of the model in memory.
//
// Invariant: a directory called checkpoint-N is complete. It is written under
// another name, its manifest last, and renamed once everything is on disk, also what
// was linked into it and not written; what
// Load reads back is bit for bit what was saved. A model that takes the place of
// another is shown in one step.
package checkpoint
