package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// WriteModel writes the model alone, without the optimizer's state, into dir as
// save_pretrained would: weights of opts.SaveDType, what opts.Source holds beside
// them, config.json and the extra files (name to content). Everything is written
// and put on disk in a temporary directory inside dir, then renamed file by file,
// the index last; shards of an older model with other names are removed.
// opts.Step and opts.Layouts do not count.
func WriteModel(dir string, layers []Layer, opts WriterOptions, extra map[string][]byte) error {
	opts = opts.defaults()
	opts.Layouts = nil
	for _, l := range layers {
		opts.Layouts = append(opts.Layouts, l.Layout)
	}
	m := &modelWriter{dir: dir, disk: &disk{fs: opts.FS}, layers: layers}
	m.add(opts.files())
	var err error
	if m.small, err = modelExtras(opts, m.shards, extra); err == nil {
		err = m.run()
	}
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

// modelWriter writes a model file by file.
type modelWriter struct {
	dir    string
	disk   *disk // of the temporary directory
	layers []Layer
	shards []*outFile
	small  map[string][]byte // everything else
	buf    []byte
	alone  bool // everything in dir is this model's: what goes with an older one is removed
}

// add plans the files of the weights.
func (m *modelWriter) add(files []*file) {
	for _, f := range files {
		m.shards = append(m.shards, &outFile{file: f, sums: map[*entry]uint32{}})
		m.disk.left += f.bytes
	}
	m.buf = make([]byte, pieceFor(m.shards))
}

// run writes everything and leaves no temporary directory, whatever happens, and
// after an error no directory that was not there before.
func (m *modelWriter) run() error {
	made := missing(m.dir)
	err := m.write()
	if m.disk.root != "" {
		if rerr := m.disk.fs.RemoveAll(m.disk.root); err == nil && rerr != nil {
			err = opError("remove", m.disk.root, rerr)
		}
	}
	if err != nil && len(made) > 0 {
		_ = m.disk.fs.RemoveAll(m.dir) // err says what went wrong
		for _, dir := range made[1:] {
			_ = os.Remove(dir) // unless there is something else by now
		}
	}
	return err
}

// missing lists dir and those above it, as far as they are not there.
func missing(dir string) []string {
	var out []string
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return out
		}
		out = append(out, dir)
		dir = filepath.Dir(dir)
	}
}

func (m *modelWriter) write() (err error) {
	if err := m.disk.fs.MkdirAll(m.dir); err != nil {
		return opError("make directory", m.dir, err)
	}
	if err := checkFree(m.disk.fs, m.dir, m.disk.left+smallFiles); err != nil {
		return err
	}
	if m.disk.root, err = makeTemp(m.disk.fs, filepath.Join(m.dir, "model")); err != nil {
		return opError("make directory", m.disk.root, err)
	}
	var names []string
	for _, f := range m.shards {
		names = append(names, f.name)
		if err := m.file(f); err != nil {
			return err
		}
	}
	names = append(names, slices.Sorted(maps.Keys(m.small))...)
	slices.SortStableFunc(names, func(a, b string) int { return isIndex(a) - isIndex(b) })
	for name, data := range m.small {
		f := &outFile{file: &file{name: name, header: data, bytes: int64(len(data))}}
		m.disk.left += f.bytes
		if err := m.file(f); err != nil {
			return err
		}
	}
	return m.rename(names)
}

func isIndex(name string) int {
	if name == indexName {
		return 1
	}
	return 0
}

// file writes f into the temporary directory and puts it on disk.
func (m *modelWriter) file(f *outFile) (err error) {
	if f.out, err = m.disk.fs.Create(m.disk.path(f.name)); err != nil {
		return m.disk.do("create", f.name, err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = f.out.Close() // err says what went wrong before
		}
	}()
	if err := m.disk.do("allocate", f.name, f.out.Allocate(f.bytes)); err != nil {
		return err
	}
	if err := f.writeAt(m.disk, f.header, 0); err != nil {
		return err
	}
	for _, e := range f.entries {
		var l Layer
		if e.layer != fromFile {
			l = m.layers[e.layer]
		}
		if err := f.writeEntry(m.disk, e, l, m.buf); err != nil {
			return err
		}
	}
	if err := m.disk.do("sync", f.name, f.out.Sync()); err != nil {
		return err
	}
	closed = true
	return m.disk.do("close", f.name, f.out.Close())
}

// rename moves the files to their place and removes weights of an older model.
func (m *modelWriter) rename(names []string) error {
	for _, name := range names {
		if err := m.disk.fs.Rename(m.disk.path(name), filepath.Join(m.dir, name)); err != nil {
			return m.disk.do("rename", name, err)
		}
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		old := isWeights(e.Name()) || m.alone && (isCompanion(e.Name()) || leftoverName.MatchString(e.Name()))
		if slices.Contains(names, e.Name()) || !old {
			continue
		}
		path := filepath.Join(m.dir, e.Name())
		if err := m.disk.fs.RemoveAll(path); err != nil {
			return opError("remove", path, err)
		}
	}
	if err := m.disk.fs.SyncDir(m.dir); err != nil {
		return opError("sync directory", m.dir, err)
	}
	return nil
}

// isWeights says whether a file of that name is one WriteModel may have written.
func isWeights(name string) bool {
	if name == singleName || name == indexName {
		return true
	}
	var i, n int
	_, err := fmt.Sscanf(name, "model-%05d-of-%05d.safetensors", &i, &n)
	return err == nil && name == fmt.Sprintf("model-%05d-of-%05d.safetensors", i, n)
}
