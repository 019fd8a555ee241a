package main

import (
	"regexp"
	"strings"
)

// harmless reports whether a run may continue and succeed although the fault's system call fails.
// For other calls it must fail. TestDiskFaults checks for damage in both cases.
func harmless(f diskFault) bool {
	c := f.call
	switch c.Name {
	case "read", "openat", "mmap", "pread64":
		return isCache(c) && c.Name == "openat" || // a file that cannot be opened is recreated
			isHousekeeping(c) ||
			savedState.MatchString(c.Path) || // of a skipped step? If unknown it counts, and the newest good state stays
			c.Path == "out/trainer_state.json" || // does the model there belong to the checkpoint? If unknown it is rewritten
			c.Name == "openat" && f.scene != firstRun && oldCheckpoint.MatchString(c.Path) || // how much room would it free?
			c.Name == "openat" && c.Path == "out/ema" || // leftovers of a killed run? Leftovers only take room
			c.Path == "out/loss.svg" || // the same picture? If unknown it is rewritten
			c.Path == "out/config.yaml" || // whose directory is it? The checkpoints tell, too
			c.Name == "pread64" && c.Path == "rows.jsonl" // a Git LFS pointer?
	case "copy_file_range": // Go then copies in another way
		return true
	case "write", "pwrite64", "fsync", "ftruncate", "fallocate", "mkdirat", "renameat", "unlinkat":
		return isHousekeeping(c) || c.Name == "unlinkat" && (isCache(c) ||
			c.Path == "out/samples.jsonl" || // missing in every scene
			c.Path == "out/trainer_state.json" && f.scene != overOld) // also missing
	}
	return looksOnly[c.Name]
}

// oldCheckpoint matches the directories of existing checkpoints, which a run reads only for their sizes.
var oldCheckpoint = regexp.MustCompile(`^out/checkpoint-[12](/optimizer)?$`)

// savedState matches the state files of checkpoints. A run reads the newest one before it removes
// checkpoints.
var savedState = regexp.MustCompile(`^out/checkpoint-[123]/trainer_state\.json$`)

// looksOnly lists the system calls that read no content and change nothing. A run may tolerate
// their failure: opening a file shows whether it exists, a file system may lack locks, and a closed
// file has been read or is on disk.
var looksOnly = map[string]bool{"close": true, "flock": true, "fstat": true, "getdents64": true, "lseek": true, "newfstatat": true, "fstatfs": true,
	"fadvise64": true, "sync_file_range": true}

// isHint reports whether a call is only a performance hint to the kernel.
func isHint(c ioCall) bool { return c.Name == "fadvise64" || c.Name == "sync_file_range" }

func isCache(c ioCall) bool { return strings.HasPrefix(c.Path, "cache/") || c.Path == "cache" }

// isHousekeeping reports whether a call removes something obsolete. If it fails, the leftover takes room until the
// next run removes it.
func isHousekeeping(c ioCall) bool {
	return strings.HasPrefix(c.Path, "out/checkpoint-1") && strings.Contains(c.Path+c.Path2, ".tmp-remove") || // save_total_limit
		c.Name == "unlinkat" && strings.HasPrefix(c.Path, "out/model.tmp-") || // of the model; empty in the end
		c.Name == "unlinkat" && strings.HasPrefix(c.Path, "out/") && strings.HasSuffix(c.Path, ".tmp") // left by a killed run
}
