package checkpoint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// WriteModel writes the model alone, without the optimizer's state, into dir as
// save_pretrained would: weights of opts.SaveDType, config.json and the extra
// files (name to content). Everything is written and put on disk in a temporary
// directory inside dir, then renamed file by file, the index last; shards of an
// older model with other names are removed. opts.Step and opts.Layouts do not
// count.
func WriteModel(dir string, layers []Layer, opts WriterOptions, extra map[string][]byte) error {
	m := &modelWriter{dir: dir, opts: opts.defaults()}
	m.disk = &disk{fs: m.opts.FS}
	m.opts.Layouts = nil
	for _, l := range layers {
		m.opts.Layouts = append(m.opts.Layouts, l.Layout)
	}
	for _, f := range modelFiles(m.opts.Layouts, m.opts.SaveDType, m.opts.MaxShardBytes) {
		m.shards = append(m.shards, &outFile{file: f, sums: map[*entry]uint32{}})
		m.disk.left += f.bytes
	}
	m.buf = make([]byte, pieceFor(m.shards))
	err := m.write(layers, extra)
	if m.disk.root != "" {
		if rerr := m.disk.fs.RemoveAll(m.disk.root); err == nil && rerr != nil {
			err = opError("remove", m.disk.root, rerr)
		}
	}
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

// modelWriter writes a model file by file.
type modelWriter struct {
	dir    string
	opts   WriterOptions
	disk   *disk // of the temporary directory
	shards []*outFile
	buf    []byte
}

func (m *modelWriter) write(layers []Layer, extra map[string][]byte) error {
	if err := m.opts.FS.MkdirAll(m.dir); err != nil {
		return opError("make directory", m.dir, err)
	}
	if err := checkFree(m.opts.FS, m.dir, m.disk.left+smallFiles); err != nil {
		return err
	}
	small, err := modelExtras(m.opts, m.shards, extra)
	if err != nil {
		return err
	}
	if m.disk.root, err = makeTemp(m.opts.FS, filepath.Join(m.dir, "model")); err != nil {
		return opError("make directory", m.disk.root, err)
	}
	var names []string
	for _, f := range m.shards {
		names = append(names, f.name)
		if err := m.file(f, layers); err != nil {
			return err
		}
	}
	names = append(names, slices.Sorted(maps.Keys(small))...)
	slices.SortStableFunc(names, func(a, b string) int { return isIndex(a) - isIndex(b) })
	for name, data := range small {
		f := &outFile{file: &file{name: name, header: data, bytes: int64(len(data))}}
		m.disk.left += f.bytes
		if err := m.file(f, nil); err != nil {
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
func (m *modelWriter) file(f *outFile, layers []Layer) (err error) {
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
		if err := f.writeEntry(m.disk, e, layers[e.layer], m.buf); err != nil {
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
		if slices.Contains(names, e.Name()) || !isWeights(e.Name()) {
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
	if name == "model.safetensors" || name == indexName {
		return true
	}
	var i, n int
	_, err := fmt.Sscanf(name, "model-%05d-of-%05d.safetensors", &i, &n)
	return err == nil && name == fmt.Sprintf("model-%05d-of-%05d.safetensors", i, n)
}
