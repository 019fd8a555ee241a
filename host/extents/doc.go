// Package extents stores layer state that does not fit in host memory. Each layer has one extent. Extents are striped
// across files in one or several directories.
//
// An extent is read and written whole. Writes bypass the page cache if the file system supports O_DIRECT, because the
// cache would use the memory that extents save. io_uring moves the chunks if the kernel has it; otherwise goroutines
// call pread and pwrite. Each chunk of an extent has a checksum, which every read verifies. With Options.Compress,
// chunks are compressed (byteplane.go).
//
// With Options.Heads, each extent has a file of its own, in one directory. Checkpoints can link such a file to keep the
// last written content. A pinned file is never written again.
//
// The files serve one process: Open creates them and Close removes them. The files of a killed process are useless,
// because a run resumes from its checkpoint. The next run with the same output directory replaces them. Files that
// checkpoints have linked stay.
package extents
