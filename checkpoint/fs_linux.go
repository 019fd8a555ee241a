package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Free returns the space that an unprivileged user can still fill.
func (osFS) Free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// Exchange swaps two directories atomically by renameat2(2) with RENAME_EXCHANGE. A file system that lacks this
// returns errors.ErrUnsupported.
func (osFS) Exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	return err
}

// Allocate reserves space with fallocate(2), if the file system supports it.
func (f *osFile) Allocate(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// Flush starts writing the range to disk. It then waits for the range of the previous call and drops it from the
// page cache, since only written pages can be dropped. Errors are ignored: if data could not be written, Sync
// reports it.
func (f *osFile) Flush(off, n int64) {
	fd := int(f.Fd())
	_ = unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
	if f.n > 0 {
		_ = unix.SyncFileRange(fd, f.off, f.n, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
		_ = unix.Fadvise(fd, f.off, f.n, unix.FADV_DONTNEED)
	}
	f.off, f.n = off, n
}

// syncData is fdatasync(2): it syncs the content and size of the file, but no times.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Sync syncs the file and drops it from the page cache.
func (f *osFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return nil
}
