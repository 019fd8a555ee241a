package checkpoint

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"mt/internal/files"
)

// notThere are the system's errors that tell what lies at a path. They do not mean that
// the disk cannot be read.
var notThere = []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP}

// IsDiskError tells whether err is an error of the disk or of the system. It says
// nothing about what was to be read, which may be whole.
func IsDiskError(err error) bool {
	var onPath *fs.PathError
	return errors.As(err, &onPath) && !slices.ContainsFunc(notThere, func(e error) bool { return errors.Is(onPath, e) })
}

// opening is how the files of a checkpoint are opened; tests give another than
// openFile.
type opening func(path string) (fs.File, error)

func openFile(path string) (fs.File, error) { return files.Open(path) }
