package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mt/internal/testkit"
)

// TestSyncReachesTheSystem: Sync calls the operating system, which returns errors for closed files
// and for files that cannot be synced. The power-cut tests rely on Sync.
func TestSyncReachesTheSystem(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	f, err := OS().Create(name)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	testkit.NoError(t, err)
	if err := f.Sync(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
	l, err := OS().Append(name)
	if err == nil {
		err = errors.Join(l.Sync(), l.Close())
	}
	testkit.NoError(t, err)
	if err := l.Sync(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed log: %v", err)
	}
	if err := OS().SyncDir(filepath.Dir(name)); err != nil {
		t.Error(err)
	}
	const unsynced = "/proc/self" // a directory that is on no disk
	d, err := os.Open(unsynced)
	if err != nil {
		t.Skipf("there is no directory here that is on no disk: %v", err)
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) {
		t.Skipf("%s can be synced: %v", unsynced, err)
	}
	if err := OS().SyncDir(unsynced); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%s: %v", unsynced, err)
	}
}
