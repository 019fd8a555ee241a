package checkpoint

import (
	"io/fs"
	"path/filepath"
	"slices"
)

// What a save takes beside its tensors: every file ends in a block of its own,
// and the manifest and the index have some lines for every tensor.
const (
	blockBytes  = 4 << 10
	lineBytes   = 256
	fewBytes    = 64 << 10 // config.json, state, directories
	fewInBlocks = 16       // such files, each in a block
)

// CheckpointBytes is how many bytes a checkpoint takes on disk at most. A file that is linked counts: it is the
// checkpoint's alone as soon as the run writes that state again.
func (o WriterOptions) CheckpointBytes() int64 {
	o = o.defaults()
	files := append(o.files(), o.stateFiles()...)
	if f := o.lowerFile(); f != nil {
		files = append(files, f)
	}
	return o.room(files)
}

// ModelBytes is how many bytes WriteModel writes at most.
func (o WriterOptions) ModelBytes() int64 {
	o = o.defaults()
	return o.room(o.files())
}

// room is how many bytes files take at most, with the small ones beside them.
func (o WriterOptions) room(files []*file) int64 {
	n := o.Extra + fewBytes + fewInBlocks*blockBytes
	for _, f := range files {
		n += blocks(f.bytes) + int64(len(f.entries))*lineBytes
	}
	return n
}

func blocks(bytes int64) int64 { return (bytes + blockBytes - 1) / blockBytes * blockBytes }

// Held are the sizes of the checkpoints in output, the oldest first, and of what
// unfinished saves have left, in bytes. A directory that is not there holds none.
func Held(output string) (checkpoints []int64, leftovers int64, err error) {
	found, left, err := list(output)
	for _, c := range slices.Backward(found) {
		checkpoints = append(checkpoints, treeBytes(c.path))
	}
	for _, path := range left {
		leftovers += treeBytes(path)
	}
	return checkpoints, leftovers, err
}

// treeBytes is the size of the files below path, in bytes. A file that cannot be looked
// at counts as none.
func treeBytes(path string) (n int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
