// Package files reads files that other programs wrote, such as a model's config.json or
// tokenizer.json. It opens regular files only and limits their size, so a pipe cannot block the
// caller and a device cannot fill memory. The package also tells whether two paths name the same
// file.
//
// It imports nothing of this module. Invariant: no more than the given maximum of a file is ever in
// memory.
package files
