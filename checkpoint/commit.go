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

// Commit completes the checkpoint. It writes config.json, the state and the extra files (name to content, such as
// the tokenizer's). It syncs everything and writes the manifest last. It then renames the directory to its final
// name; an existing checkpoint of that name is replaced.
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

// finish completes all files of the checkpoint. It syncs and closes the tensor files, writes the small files and,
// last, the manifest.
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

// smallFiles returns the contents, by name, of all files that are neither tensor files nor the manifest: state,
// config.json and the extra files.
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

// extras returns a copy of extra with config.json added; both map a file's name to its content. extra holds files
// to save beside the weights, such as tokenizer.json. In config.json the dtype of the weights is o.SaveDType; for
// AsRead, config.json stays as it was read.
func (o WriterOptions) extras(extra map[string][]byte) (map[string][]byte, error) {
	small, err := modelExtras(extra)
	if err == nil && o.SaveDType == AsRead {
		small["config.json"] = o.Config.JSONAsRead()
	} else if err == nil {
		small["config.json"] = o.Config.JSON(o.SaveDType.name())
	}
	return small, err
}

// modelExtras returns a copy of extra, the files to save beside the weights. It fails if a name belongs to a file
// that the save writes itself, such as the manifest or weights. It also fails for a name with a folder, unless a
// pattern of companions allows it.
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

// folders returns the folders in which the files named in small lie, except the checkpoint's own directory.
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

// addIndex adds model.safetensors.index.json to small if the weights are in several shards. A
// single shard needs no index.
func addIndex(small map[string][]byte, shards []*outFile) {
	if len(shards) > 1 {
		small[indexName] = indexJSON(shards)
	}
}

// close syncs and closes f.
func (w *Writer) close(f *outFile) error {
	if err := w.disk.do("sync", f.name, f.out.Sync()); err != nil {
		return err
	}
	w.open = slices.DeleteFunc(w.open, func(o *outFile) bool { return o == f })
	return w.disk.do("close", f.name, f.out.Close())
}

// writeSmall writes a whole file of the checkpoint, with the given name and content, and syncs it.
func (w *Writer) writeSmall(name string, data []byte) error {
	f := &outFile{file: &file{name: name, header: data, bytes: int64(len(data))}}
	w.disk.left += f.bytes
	if err := w.create(f); err != nil {
		return err
	}
	return w.close(f)
}

// rename gives the directory its final name. An existing directory of that name is replaced.
func (w *Writer) rename() error {
	fs, tmp := w.disk.fs, w.disk.root
	if _, err := os.Stat(w.final); err == nil {
		return w.replace()
	}
	if err := w.disk.do("rename", "", fs.Rename(tmp, w.final)); err != nil {
		return err
	}
	w.disk.root = w.final // a failure removes this directory
	output := filepath.Dir(w.final)
	return opError("sync directory", output, fs.SyncDir(output))
}

// replace exchanges the new directory, which still has its temporary name, with the existing
// checkpoint of the final name. It then removes the older checkpoint. After an error the older
// checkpoint has its name again.
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
			w.disk.root = "" // keep both: the older one may be under the temporary name
		}
		return err
	}
	_ = fs.RemoveAll(tmp) // Prune removes it if it stays
	return nil
}

// exchange swaps two directories by renames, for file systems without an atomic exchange. For a moment b does not
// exist. After an error both are back in place.
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

// WriteFile creates or replaces the file path atomically: readers find the old or the new content, also after a
// power cut. It syncs the content under another name and renames that file. The directory of path must exist.
func WriteFile(fs FS, path string, content []byte) error {
	return writeBy(fs, path, path+WholeTemp, content)
}

// WriteShared is WriteFile for a file that several processes may write at the same time. Each process uses its own
// temporary name; the last rename decides the content.
func WriteShared(fs FS, path string, content []byte) error {
	return writeBy(fs, path, fmt.Sprintf("%s-%016x%s", path, rand.Uint64(), WholeTemp), content)
}

// writeBy writes the file path atomically, for WriteFile and WriteShared. It writes the content
// under the name tmp, syncs it and renames the file to path.
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

// WholeTemp is the suffix of the temporary names of WriteFile and WriteShared.
const WholeTemp = ".tmp"

// writeSynced creates the file path, writes content to it and syncs it.
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

// MakeDirs makes the directory dir and its parents, and syncs their entries. Without this, a power cut could lose
// the directory and everything saved in it.
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

// ErrLocked is the error of Lock if another process holds the lock.
var ErrLocked = errors.New("another mt writes there now; wait for its end, or choose another name")

// Lock locks a directory, or a file, for writing until unlock is called or the process ends. Thus
// two runs never write the same files, and no run takes another run's files for leftovers. Lock
// fails with ErrLocked if another process holds the lock. On a file system without locks it
// succeeds, but keeps nobody out.
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

// Sweep removes leftovers of killed saves in dir. A missing directory has none. Sweep fails with ErrLocked if
// another process writes into dir.
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
			_ = fs.RemoveAll(filepath.Join(dir, e.Name())) // a leftover that stays takes space; the next check of free space sees this
		}
	}
	return nil
}
