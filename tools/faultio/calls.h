// The system calls that faultio traces, with their properties.
#ifndef CALLS_H
#define CALLS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>

// Effect of a call on files.
enum kind {
	LOOKS,   // reads content or metadata of a file, or opens it for that
	CHANGES, // makes, removes, renames or syncs
	WRITES,  // takes bytes from memory, whose number is an argument
	BEYOND,  // more than any call does
};

struct call {
	long nr;
	const char *name;
	enum kind kind;
	// The numbers of the arguments, -1 for one that the call does not have. A path
	// is relative to the directory that the descriptor before it names, or else to
	// the working directory.
	int fd, path, second, flags, bytes;
};

#define NONE -1

// clang-format off
static const struct call calls[] = {
	{SYS_open,              "open",              LOOKS,   NONE, 0,    NONE, 1,    NONE},
	{SYS_openat,            "openat",            LOOKS,   0,    1,    NONE, 2,    NONE},
	{SYS_creat,             "creat",             CHANGES, NONE, 0,    NONE, NONE, NONE},
	{SYS_close,             "close",             LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_read,              "read",              LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_pread64,           "pread64",           LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_readv,             "readv",             LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_preadv,            "preadv",            LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_lseek,             "lseek",             LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_mmap,              "mmap",              LOOKS,   4,    NONE, NONE, NONE, NONE},
	{SYS_getdents64,        "getdents64",        LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_stat,              "stat",              LOOKS,   NONE, 0,    NONE, NONE, NONE},
	{SYS_lstat,             "lstat",             LOOKS,   NONE, 0,    NONE, NONE, NONE},
	{SYS_fstat,             "fstat",             LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_newfstatat,        "newfstatat",        LOOKS,   0,    1,    NONE, NONE, NONE},
	{SYS_statx,             "statx",             LOOKS,   0,    1,    NONE, NONE, NONE},
	{SYS_statfs,            "statfs",            LOOKS,   NONE, 0,    NONE, NONE, NONE},
	{SYS_fstatfs,           "fstatfs",           LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_access,            "access",            LOOKS,   NONE, 0,    NONE, NONE, NONE},
	{SYS_faccessat,         "faccessat",         LOOKS,   0,    1,    NONE, NONE, NONE},
	{SYS_faccessat2,        "faccessat2",        LOOKS,   0,    1,    NONE, NONE, NONE},
	{SYS_readlink,          "readlink",          LOOKS,   NONE, 0,    NONE, NONE, NONE},
	{SYS_readlinkat,        "readlinkat",        LOOKS,   0,    1,    NONE, NONE, NONE},
	{SYS_flock,             "flock",             LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_fadvise64,         "fadvise64",         LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_sync_file_range,   "sync_file_range",   LOOKS,   0,    NONE, NONE, NONE, NONE},
	{SYS_write,             "write",             WRITES,  0,    NONE, NONE, NONE, 2},
	{SYS_pwrite64,          "pwrite64",          WRITES,  0,    NONE, NONE, NONE, 2},
	{SYS_sendfile,          "sendfile",          WRITES,  0,    NONE, NONE, NONE, 3},
	{SYS_copy_file_range,   "copy_file_range",   WRITES,  2,    NONE, NONE, NONE, 4},
	{SYS_writev,            "writev",            CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_pwritev,           "pwritev",           CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_fsync,             "fsync",             CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_fdatasync,         "fdatasync",         CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_truncate,          "truncate",          CHANGES, NONE, 0,    NONE, NONE, NONE},
	{SYS_ftruncate,         "ftruncate",         CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_fallocate,         "fallocate",         CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_mkdir,             "mkdir",             CHANGES, NONE, 0,    NONE, NONE, NONE},
	{SYS_mkdirat,           "mkdirat",           CHANGES, 0,    1,    NONE, NONE, NONE},
	{SYS_rmdir,             "rmdir",             CHANGES, NONE, 0,    NONE, NONE, NONE},
	{SYS_unlink,            "unlink",            CHANGES, NONE, 0,    NONE, NONE, NONE},
	{SYS_unlinkat,          "unlinkat",          CHANGES, 0,    1,    NONE, NONE, NONE},
	{SYS_rename,            "rename",            CHANGES, NONE, 0,    1,    NONE, NONE},
	{SYS_renameat,          "renameat",          CHANGES, 0,    1,    3,    NONE, NONE},
	{SYS_renameat2,         "renameat2",         CHANGES, 0,    1,    3,    NONE, NONE},
	{SYS_link,              "link",              CHANGES, NONE, 0,    1,    NONE, NONE},
	{SYS_linkat,            "linkat",            CHANGES, 0,    1,    3,    NONE, NONE},
	{SYS_symlink,           "symlink",           CHANGES, NONE, 1,    NONE, NONE, NONE},
	{SYS_symlinkat,         "symlinkat",         CHANGES, 1,    2,    NONE, NONE, NONE},
	{SYS_chmod,             "chmod",             CHANGES, NONE, 0,    NONE, NONE, NONE},
	{SYS_fchmod,            "fchmod",            CHANGES, 0,    NONE, NONE, NONE, NONE},
	{SYS_fchmodat,          "fchmodat",          CHANGES, 0,    1,    NONE, NONE, NONE},
	{SYS_utimensat,         "utimensat",         CHANGES, 0,    1,    NONE, NONE, NONE},
};
// clang-format on

enum { NUM_CALLS = sizeof calls / sizeof *calls };

// kind_of is the kind of a call with these arguments: an open that makes or
// empties a file changes something.
static enum kind kind_of(const struct call *c, const unsigned long long *args) {
	if (c->flags != NONE && (args[c->flags] & (O_CREAT | O_TRUNC)) != 0)
		return CHANGES;
	return c->kind;
}

// most_of is the highest kind that a call has with any arguments.
static enum kind most_of(const struct call *c) {
	return c->flags != NONE && c->kind < CHANGES ? CHANGES : c->kind;
}

// is_sync says whether a call does no more than to bring to the disk what files already have.
static bool is_sync(const struct call *c) {
	return c->nr == SYS_fsync || c->nr == SYS_fdatasync || c->nr == SYS_sync_file_range;
}

#endif
