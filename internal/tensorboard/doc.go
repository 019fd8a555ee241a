// Package tensorboard writes scalars in the event files that TensorBoard reads.
//
// It imports nothing of ours. Invariant: a file is a sequence of whole records;
// one cut off by a crash is the last and is ignored by readers.
package tensorboard
