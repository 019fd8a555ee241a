// Package checkpoint reads and writes models and training states on disk. Weights are safetensors in Hugging Face's
// layout, with the optimizer's state beside them. Saves are atomic and resumes exact. Other files of a model
// directory and tensors that are not trained are copied byte for byte.
//
// Weights of a model directory may be quantized: E4M3 with scales (fp8.go) or MXFP4 (mxfp4.go). They are decoded while
// they are read. A finished model can be written in the same format with new scales (requantized.go).
//
// A checkpoint in bf16 also stores the lower half of each weight: the 16 bits that complete the bf16 value to the
// fp32 master weight. All arrays beside the weights, such as AdamW's moments, are called planes.
//
// A layer's optimizer state that lives on a disk is linked into the checkpoint if the file system allows this
// (linked.go). The run's file with this state (its extent) has the format of a checkpoint's optimizer file. Saving
// pins the file, syncs it and gives it a second name. The next write of the layer goes into a new file.
//
// A checkpoint counts as good once a later step has a finite loss and gradient. Until then the previous good
// checkpoint is kept. The size of a checkpoint follows from the layouts (WriterOptions.CheckpointBytes).
//
// It imports model, host/optim, base/files and base/human. The memory of a layer is passed as a Layer, a view of
// package host's arenas. Files are read and written in pieces, so there is never a second copy of the model in
// memory.
//
// Invariant: a directory called checkpoint-N is complete. A save writes it under another name, the manifest last.
// It renames the directory once all files, linked ones included, are synced. Load returns bit for bit what was
// saved. A model replaces an older one in a single step.
package checkpoint
