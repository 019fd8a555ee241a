package main

import (
	"regexp"
	"strings"
)

// harmless says whether a run may go on, and end well, when the call fails. Whether it
// did harm is checked all the same.
func harmless(f diskFault) bool {
	c := f.call
	switch c.Name {
	case "read", "openat", "mmap", "pread64":
		return isCache(c) && c.Name == "openat" || // what cannot be opened is made again
			isHousekeeping(c) ||
			savedState.MatchString(c.Path) || // of a skipped step? If unknown it counts, and the newest that is good stays
			c.Path == "out/trainer_state.json" || // is the model there that of the checkpoint? If unknown it is written again
			c.Name == "openat" && f.scene != firstRun && oldCheckpoint.MatchString(c.Path) || // how much room would it free?
			c.Name == "openat" && c.Path == "out/ema" || // is anything left there of a killed run? What stays takes room
			c.Path == "out/loss.svg" || // is it the same picture? If unknown it is written again
			c.Path == "out/config.yaml" || // whose is the directory? The checkpoints say it, too
			c.Name == "pread64" && c.Path == "rows.jsonl" // is it a pointer of Git LFS?
	case "copy_file_range": // Go copies in another way then
		return true
	case "write", "pwrite64", "fsync", "ftruncate", "fallocate", "mkdirat", "renameat", "unlinkat":
		return isHousekeeping(c) || c.Name == "unlinkat" && (isCache(c) ||
			c.Path == "out/samples.jsonl" || // it is not there in any scene
			c.Path == "out/trainer_state.json" && f.scene != overOld) // nor is this
	}
	return looksOnly[c.Name]
}

// oldCheckpoint matches the directories of the checkpoints that a run finds; they
// are read through only for their sizes.
var oldCheckpoint = regexp.MustCompile(`^out/checkpoint-[12](/optimizer)?$`)

// savedState matches the states of checkpoints. Before checkpoints are removed, the
// state of the one that is newest then is read.
var savedState = regexp.MustCompile(`^out/checkpoint-[123]/trainer_state\.json$`)

// looksOnly are calls that read no content and change nothing. A run may do without
// them where they fail: whether a file is there shows when it is opened, a file system
// may have no locks, and what is closed was read or is on disk.
var looksOnly = map[string]bool{"close": true, "flock": true, "fstat": true, "getdents64": true, "lseek": true, "newfstatat": true, "fstatfs": true,
	"fadvise64": true, "sync_file_range": true}

// isHint says whether a call does no more than to ask the kernel to be quick.
func isHint(c ioCall) bool { return c.Name == "fadvise64" || c.Name == "sync_file_range" }

func isCache(c ioCall) bool { return strings.HasPrefix(c.Path, "cache/") || c.Path == "cache" }

// isHousekeeping says whether a call is for removing what nobody needs any more. What
// cannot be removed takes room, and goes with the next run.
func isHousekeeping(c ioCall) bool {
	return strings.HasPrefix(c.Path, "out/checkpoint-1") && strings.Contains(c.Path+c.Path2, ".tmp-remove") || // save_total_limit
		c.Name == "unlinkat" && strings.HasPrefix(c.Path, "out/model.tmp-") || // the model's is empty in the end
		c.Name == "unlinkat" && strings.HasPrefix(c.Path, "out/") && strings.HasSuffix(c.Path, ".tmp") // of a killed run
}
