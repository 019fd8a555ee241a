package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Commit completes the checkpoint: config.json, state and the extra files (name
// to content, such as the tokenizer's) are written, everything is put on disk,
// the manifest last, and the directory gets its name. A checkpoint that had the
// name is replaced.
func (w *Writer) Commit(state TrainerState, extra map[string][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if i := slices.Index(w.written, false); i >= 0 {
		return w.failLocked(fmt.Errorf("layer %d was not written", i))
	}
	if err := w.writeWeights(fromFile, Layer{}); err != nil {
		return w.failLocked(err)
	}
	if err := w.finish(state, extra); err != nil {
		return w.failLocked(err)
	}
	if err := w.rename(); err != nil {
		return w.failLocked(err)
	}
	w.err = errors.New("checkpoint: the writer has committed")
	return nil
}

// finish writes all that is not tensors and puts every file on disk.
func (w *Writer) finish(state TrainerState, extra map[string][]byte) error {
	for _, f := range slices.Clone(w.open) {
		if err := w.close(f); err != nil {
			return err
		}
		if !f.zstd {
			w.record = append(w.record, f.recordOf())
		}
	}
	small, err := w.smallFiles(state, extra)
	if err != nil {
		return err
	}
	if err := w.disk.makeFolders(small); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(small)) {
		if err := w.writeSmall(name, small[name]); err != nil {
			return err
		}
		w.record = append(w.record, sumRecord(name, small[name]))
	}
	if err := w.disk.syncFolders(small); err != nil {
		return err
	}
	slices.SortFunc(w.record, func(a, b fileRecord) int { return strings.Compare(a.Name, b.Name) })
	text, err := manifest{manifestFormat, manifestVersion, w.record}.sealed()
	if err != nil {
		return err
	}
	if !w.opts.ModelOnly {
		if err := w.disk.do("sync directory", "optimizer", w.disk.fs.SyncDir(w.disk.path("optimizer"))); err != nil {
			return err
		}
	}
	if err := w.writeSmall(manifestName, text); err != nil {
		return err
	}
	return w.disk.do("sync directory", "", w.disk.fs.SyncDir(w.disk.root))
}

// smallFiles are the contents of all files but the tensors and the manifest.
func (w *Writer) smallFiles(state TrainerState, extra map[string][]byte) (map[string][]byte, error) {
	text, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stateName, err)
	}
	small, err := w.opts.extras(extra)
	if err != nil {
		return nil, err
	}
	addIndex(small, w.shards)
	small[stateName] = append(text, '\n')
	return small, nil
}

// extras are the files beside the weights: those given and config.json.
func (o WriterOptions) extras(extra map[string][]byte) (map[string][]byte, error) {
	small, err := modelExtras(extra)
	if err == nil {
		small["config.json"] = o.Config.JSON(o.SaveDType.name())
	}
	return small, err
}

// modelExtras are the files given. It is an error where one has a name that a save uses
// itself, or lies in a folder that is not for companions.
func modelExtras(extra map[string][]byte) (map[string][]byte, error) {
	small := map[string][]byte{}
	for name, data := range extra {
		if name != filepath.Base(name) && !isCompanion(name) || !filepath.IsLocal(name) || name == manifestName || name == stateName || IsWeights(name) {
			return nil, fmt.Errorf("extra file %q: not a name for a file beside the weights", name)
		}
		small[name] = data
	}
	return small, nil
}

// folders are the folders that names of files have, below the directory that is written.
func folders(small map[string][]byte) (list []string) {
	for name := range small {
		if f := filepath.Dir(name); f != "." && !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}

func (d *disk) makeFolders(small map[string][]byte) error {
	for _, f := range folders(small) {
		if err := d.do("make directory", f, d.fs.MkdirAll(d.path(f))); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) syncFolders(small map[string][]byte) error {
	for _, f := range folders(small) {
		if err := d.do("sync directory", f, d.fs.SyncDir(d.path(f))); err != nil {
			return err
		}
	}
	return nil
}

// addIndex adds the index of shards, where there is more than one.
func addIndex(small map[string][]byte, shards []*outFile) {
	if len(shards) > 1 {
		small[indexName] = indexJSON(shards)
	}
}

// close puts f on disk and closes it.
func (w *Writer) close(f *outFile) error {
	if err := w.disk.do("sync", f.name, f.out.Sync()); err != nil {
		return err
	}
	w.open = slices.DeleteFunc(w.open, func(o *outFile) bool { return o == f })
	return w.disk.do("close", f.name, f.out.Close())
}

// writeSmall writes a whole file and puts it on disk.
func (w *Writer) writeSmall(name string, data []byte) error {
	f := &outFile{file: &file{name: name, header: data, bytes: int64(len(data))}}
	w.disk.left += f.bytes
	if err := w.create(f); err != nil {
		return err
	}
	return w.close(f)
}

// rename gives the directory its name, replacing an older one.
func (w *Writer) rename() error {
	fs, tmp := w.disk.fs, w.disk.root
	if _, err := os.Stat(w.final); err == nil {
		return w.replace()
	}
	if err := w.disk.do("rename", "", fs.Rename(tmp, w.final)); err != nil {
		return err
	}
	w.disk.root = w.final // what a failure removes
	output := filepath.Dir(w.final)
	return opError("sync directory", output, fs.SyncDir(output))
}

// replace swaps the directory with the older one of its name and removes that.
// After an error the older one has its name again.
func (w *Writer) replace() error {
	fs, tmp, output := w.disk.fs, w.disk.root, filepath.Dir(w.final)
	swap := fs.Exchange
	err := swap(tmp, w.final)
	if errors.Is(err, errors.ErrUnsupported) {
		swap = func(a, b string) error { return exchange(fs, a, b) }
		err = swap(tmp, w.final)
	}
	if err != nil {
		return opError("rename", tmp, err)
	}
	if err := fs.SyncDir(output); err != nil {
		err = opError("sync directory", output, err)
		if serr := swap(tmp, w.final); serr != nil {
			err = fmt.Errorf("%w; and then %w", err, opError("rename", tmp, serr))
			w.disk.root = "" // nothing is removed: the older one is there
		}
		return err
	}
	_ = fs.RemoveAll(tmp) // if it stays, Prune removes it
	return nil
}

// exchange swaps two directories by renames, where the file system cannot do it in one
// step: for a moment there is no b. After an error both are where they were.
func exchange(fs FS, a, b string) error {
	aside := a + "-old"
	if err := fs.Rename(b, aside); err != nil {
		return err
	}
	err := fs.Rename(a, b)
	if err == nil {
		if err = fs.Rename(aside, a); err == nil {
			return nil
		}
		err = errors.Join(err, fs.Rename(b, a))
	}
	return errors.Join(err, fs.Rename(aside, b))
}

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

// ErrLocked is the error of Lock where another process writes.
var ErrLocked = errors.New("another mt writes there now; wait for its end, or choose another name")

// Lock locks a directory for the caller to write into, or a file to write, until it
// calls unlock or the process ends. So two runs do not write one set of files, and no
// run takes what another is writing for a leftover. On a file system without locks
// nobody is kept out.
func Lock(path string) (unlock func(), err error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if errors.Is(unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return nil, errors.Join(ErrLocked, d.Close())
	}
	return func() { _ = d.Close() }, nil
}

// Sweep removes what killed saves have left in dir; a directory that is not there
// has none. It fails with ErrLocked while somebody writes there.
func Sweep(fs FS, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	unlock, err := Lock(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unlock()
	for _, e := range entries {
		if IsLeftover(e) {
			_ = fs.RemoveAll(filepath.Join(dir, e.Name())) // what stays takes room, and how much is left is checked next
		}
	}
	return nil
}
