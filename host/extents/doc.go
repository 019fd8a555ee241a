// Package extents keeps what a host has no memory for: one extent for each layer, in files of one
// directory or of several, across which extents are striped.
//
// An extent is read and written whole. What is written goes past the page cache where the file
// system can do that (O_DIRECT), because the cache would take the memory that is to be spared. Chunks are
// moved by io_uring where there is one, and else by goroutines that call pread and pwrite. Each
// chunk of an extent has a checksum, which is compared whenever it is read. With Options.Compress chunks
// are written in fewer bytes (byteplane.go).
//
// Extents may be files of their own instead, in one directory (Options.Heads). Others may link these,
// as checkpoints do, and have then what was written last: what is pinned is never written to again.
//
// The files are good for one process: they are made when it opens them and removed when it closes
// them. What a killed process leaves is of no use, since runs go on from their checkpoints; the
// next run with the same output directory takes its place. What others have linked stays.
package extents
