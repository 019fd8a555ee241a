package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"mt/base/files"
	"mt/checkpoint"
)

// underway is the middle part of a temporary name. The name consists of the output's name,
// underway, and the id of the process that writes it.
const underway = ".tmp-"

var underwayName = regexp.MustCompile(`^(.+)\.tmp-\d+$`)

// removeLeftovers removes leftovers of killed exports in the directory of the output name, since each may be as
// large as an output. It removes unfinished outputs called name. It also removes unfinished outputs of other names
// if they begin like a GGUF file. A file that another process still writes, and so has locked, stays.
func removeLeftovers(fs checkpoint.FS, name string) {
	dir, base := filepath.Dir(name), filepath.Base(name)
	entries, _ := os.ReadDir(dir) // a leftover that stays takes space, which is checked next
	for _, e := range entries {
		of := underwayName.FindStringSubmatch(e.Name())
		path := filepath.Join(dir, e.Name())
		if of == nil || !e.Type().IsRegular() {
			continue
		}
		if begin, _ := files.Begin(path, 4); of[1] != base && string(begin) != "GGUF" { // an unreadable one stays
			continue
		}
		if unlock, err := checkpoint.Lock(path); err == nil {
			_ = fs.RemoveAll(path)
			unlock()
		}
	}
}

// atomically writes a file of the given size under a temporary name, syncs it and renames it. After an error no
// file is left.
func atomically(fs checkpoint.FS, name string, size int64, write func(io.Writer) error) (err error) {
	tmp := name + underway + strconv.Itoa(os.Getpid())
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	if unlock, err := checkpoint.Lock(tmp); err == nil { // without the lock another export may remove the file, and this export fails
		defer unlock()
	}
	closed := false
	defer func() {
		if err != nil {
			if !closed {
				err = errors.Join(err, f.Close())
			}
			err = errors.Join(err, fs.RemoveAll(tmp))
		}
	}()
	if err := f.Allocate(size); err != nil {
		return fmt.Errorf("allocate %s: %w", tmp, err)
	}
	buf := bufio.NewWriterSize(&appender{f: f}, 1<<20)
	if err := write(buf); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	closed = true
	if err := f.Close(); err != nil {
		return err
	}
	if err := fs.Rename(tmp, name); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(name))
}
