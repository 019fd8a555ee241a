// Package files reads files that others made: a model's configuration, its
// tokenizer, an index. Such a directory may hold anything, so what is read is a
// regular file of a bounded size: a pipe does not hold us up, and a device does not
// fill the memory. It also tells whether two names are of one file.
//
// It imports nothing of ours. Invariant: no more than the bound is ever in memory.
package files
