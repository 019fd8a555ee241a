package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Weights lie in one file, or in shards with an index. Where a directory has both,
// readers take the one file. So a model is replaced in one step: by the rename of the
// one file, or by that of an index whose shards the older index does not name.

// shardName is the name of shard i of a model with so many shards (of). version counts
// the models that the directory has had; the first has no number in its names.
func shardName(version, i, of int) string {
	v := ""
	if version > 1 {
		v = fmt.Sprintf("v%d-", version)
	}
	return fmt.Sprintf("model-%s%05d-of-%05d.safetensors", v, i, of)
}

var shardNames = regexp.MustCompile(`^model-(v\d+-)?\d{5,}-of-\d{5,}\.safetensors$`)

// IsWeights says whether a file of that name is one that WriteModel or CopyModel
// may have written weights to.
func IsWeights(name string) bool {
	return name == singleName || name == indexName || shardNames.MatchString(name)
}

// freshNames gives files, the shards of a model for dir, names that the index in dir
// does not have.
func freshNames(dir string, files []*file) {
	if len(files) < 2 {
		return
	}
	used := indexed(dir)
	for version := 1; ; version++ {
		taken := false
		for i, f := range files {
			f.name = shardName(version, i+1, len(files))
			taken = taken || used[f.name]
		}
		if !taken {
			return
		}
	}
}

// indexed are the shards that the index in dir names; where it cannot be read, all
// files in dir.
func indexed(dir string) map[string]bool {
	used := map[string]bool{}
	old := source{dir: dir}
	weightMap, err := old.readIndex()
	if err != nil {
		entries, _ := os.ReadDir(dir) // a directory that cannot be read is an error later
		for _, e := range entries {
			used[e.Name()] = true
		}
	}
	for _, shard := range weightMap {
		used[shard] = true
	}
	return used
}

// show moves the files to their places and then removes those of the older model. The
// file by which readers find the weights is moved last.
func (m *modelWriter) show() error {
	first, last := []string{}, singleName
	if len(m.shards) > 1 {
		last = indexName
	}
	for _, f := range m.shards {
		first = append(first, f.name)
	}
	for name := range m.small {
		first = append(first, name)
	}
	slices.Sort(first)
	first = slices.DeleteFunc(first, func(name string) bool { return name == last })
	shown := &disk{fs: m.disk.fs, root: m.dir}
	if err := shown.makeFolders(m.small); err != nil {
		return err
	}
	for _, name := range first {
		if err := m.move(name); err != nil {
			return err
		}
	}
	if err := errors.Join(shown.syncFolders(m.small), m.syncDir()); err != nil {
		return err
	}
	if err := m.move(last); err != nil {
		return err
	}
	m.shown = true
	if err := m.syncDir(); err != nil {
		return err
	}
	return m.removeOlder(append(first, last))
}

// move gives a file of the temporary directory its place.
func (m *modelWriter) move(name string) error {
	return m.disk.do("rename", name, m.disk.fs.Rename(m.disk.path(name), filepath.Join(m.dir, name)))
}

func (m *modelWriter) syncDir() error {
	return opError("sync directory", m.dir, m.disk.fs.SyncDir(m.dir))
}

// removeOlder removes the files of an older model, except those listed in names.
// Directories stay.
func (m *modelWriter) removeOlder(names []string) error {
	older, err := m.older()
	if err != nil {
		return err
	}
	for _, name := range older {
		path := filepath.Join(m.dir, name)
		if st, err := os.Lstat(path); err != nil || st.IsDir() || slices.Contains(names, name) {
			continue
		}
		if err := m.disk.fs.RemoveAll(path); err != nil {
			return opError("remove", path, err)
		}
	}
	return m.syncDir()
}

// older are the names in the directory that a model may have: those of weights and, in a directory for one model alone, of companions.
func (m *modelWriter) older() (names []string, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if IsWeights(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if !m.alone {
		return names, nil
	}
	beside, err := companionsIn(m.dir)
	return append(names, beside...), err
}
