package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// file is one file of an archive or a wheel. name is its path there, with slashes.
type file struct {
	name string
	data []byte
	runs bool // executable
}

// mode returns the file's permissions.
func (f file) mode() fs.FileMode {
	if f.runs {
		return 0o755
	}
	return 0o644
}

// filesUnder returns the files below the folder dir, sorted by name. Their names begin with the folder in instead of
// dir.
func filesUnder(dir, in string) (out []file, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		out = append(out, file{name: path.Join(in, name), data: data})
		return err
	})
	return out, err
}

// archive writes a .tar.gz with one folder. The folder has the binary in bin/, and the files of share. All files have
// the time of the commit.
func archive(w io.Writer, b *mtBinary, share []file) error {
	return tarball(w, "mt-"+b.version(), b.made, append([]file{{name: "bin/mt", data: b.data, runs: true}}, share...))
}

// tarball writes files as a .tar.gz. All files are in one folder and have the time made.
func tarball(w io.Writer, folder string, made time.Time, files []file) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(packed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Size: int64(len(f.data)),
			Mode: int64(f.mode()), ModTime: made, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), packed.Close())
}

// empty creates the folder dir. If dir exists, it removes the files that an earlier run of dist left there. It returns
// an error if dir has any other file.
func empty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range old {
		if name := e.Name(); name != sums && !strings.HasPrefix(name, "mt-") {
			return fmt.Errorf("%s has %s, which dist has not made: give -out another folder", dir, name)
		}
	}
	for _, e := range old {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

const sums = "SHA256SUMS"

// writeSums writes the checksums of all files in dir to a file there, in the format of `sha256sum -c`.
func writeSums(dir string) error {
	all, err := filesUnder(dir, "")
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(b.String()), 0o644)
}
