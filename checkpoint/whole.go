package checkpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
)

// WriteFile replaces the file path, or makes it, so that whoever reads it, even
// after a power cut, finds the older content or this one: content is put on disk
// under another name, which is renamed. Its directory must be there.
func WriteFile(fs FS, path string, content []byte) error {
	return writeBy(fs, path, path+WholeTemp, content)
}

// WriteShared is WriteFile for a file that other processes may write at the same time: each of them has another name of its
// own, and the last to rename it has its content stay.
func WriteShared(fs FS, path string, content []byte) error {
	return writeBy(fs, path, fmt.Sprintf("%s-%016x%s", path, rand.Uint64(), WholeTemp), content)
}

// writeBy is WriteFile, by way of the name tmp.
func writeBy(fs FS, path, tmp string, content []byte) error {
	err := writeSynced(fs, tmp, content)
	if err == nil {
		err = opError("rename", tmp, fs.Rename(tmp, path))
	}
	if err != nil {
		return errors.Join(err, opError("remove", tmp, fs.RemoveAll(tmp)))
	}
	dir := filepath.Dir(path)
	return opError("sync directory", dir, fs.SyncDir(dir))
}

// WholeTemp ends the names under which WriteFile and WriteShared write.
const WholeTemp = ".tmp"

// writeSynced writes a file and puts its content on disk.
func writeSynced(fs FS, path string, content []byte) (err error) {
	f, err := fs.Create(path)
	if err != nil {
		return opError("create", path, err)
	}
	if _, err = f.WriteAt(content, 0); err != nil {
		err = opError("write", path, err)
	} else {
		err = opError("sync", path, f.Sync())
	}
	if closing := f.Close(); err == nil {
		err = opError("close", path, closing)
	}
	return err
}

// MakeDirs makes the directory dir and those above it, and puts on disk that they
// are there: what is saved in a directory whose own name is lost is lost with it.
func MakeDirs(fs FS, dir string) error {
	made := missing(dir)
	if err := fs.MkdirAll(dir); err != nil {
		return opError("make directory", dir, err)
	}
	for _, d := range made {
		if err := fs.SyncDir(filepath.Dir(d)); err != nil {
			return opError("sync directory", filepath.Dir(d), err)
		}
	}
	return nil
}
