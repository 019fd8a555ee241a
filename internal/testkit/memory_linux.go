package testkit

import (
	"os"
	"syscall"
	"testing"
)

// scratchBytes is the least free memory, in bytes, for the temporary files of a package's tests.
const scratchBytes = 2 << 30

// InMemory runs a package's tests with temporary files in memory, if there is enough, because the tests sync thousands
// of files. Long tests keep their files on disk, to test a real file system. InMemory returns the exit status for
// TestMain.
func InMemory(m *testing.M) int {
	const memory = "/dev/shm"
	var s syscall.Statfs_t
	if asked || os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &s) != nil || s.Bavail*uint64(s.Bsize) < scratchBytes {
		return m.Run()
	}
	dir, err := os.MkdirTemp(memory, "mt-tests")
	if err != nil {
		return m.Run()
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return m.Run()
	}
	return m.Run()
}
