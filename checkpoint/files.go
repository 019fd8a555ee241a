package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"mt/host/optim"
	"mt/model"
)

// defaultShardBytes is where a model is cut into shards, as save_pretrained does.
const defaultShardBytes = 5_000_000_000

// entry is one tensor to be written: where its values come from and go to.
type entry struct {
	tensor
	layer  int // whose memory it is in; fromFile: it is copied from a file
	layout model.TensorLayout
	elem   int64 // its first element in the parameter, or of a plane beside the weights its first byte there
	elems  int64
	plane  plane
	from   *stored  // not nil: the tensor of another file
	placed []placed // not nil: it has the rows of these (placed.go), and layout and elem mean nothing
}

// fromFile is the layer of tensors that come from another file, passedOver of those that are read for
// their checksum alone.
const (
	fromFile   = -1
	passedOver = -2
)

// file is one safetensors file to be written.
type file struct {
	name    string // relative to the directory, slashes
	header  []byte
	entries []*entry
	bytes   int64 // before compression
	zstd    bool
	linked  bool // it is there already, and gets a second name (linked.go)
}

// entriesOf lists plane p of the weights of every tensor that layout owns and that has it: those of a checkpoint, or
// for lower halves those that parameters have of their own. What is always saved in fp32 is so in place of bf16, and
// then has no lower halves.
func entriesOf(layer int, layout model.Layout, p plane) []*entry {
	var out []*entry
	for _, t := range layout.Tensors {
		p := p
		if t.SavedF32 && p == planeBF16 {
			p = planeF32
		}
		if t.Ref || p == planeLo && (t.SavedF32 || t.BF16 && !layout.HasLo(t)) {
			continue
		}
		for i, st := range t.Stored {
			if st.Place.Tensor != "" && p != planeLo {
				out = addPlaced(out, layer, t, i, p)
				continue
			}
			elems := int64(st.Rows) * int64(t.Cols)
			out = append(out, &entry{
				tensor: tensor{name: p.prefix + st.Name, dtype: p.dtype, shape: t.StoredShape(i), bytes: elems * p.size()},
				layer:  layer, layout: t, elem: int64(st.Row) * int64(t.Cols), elems: elems, plane: p,
			})
		}
	}
	return out
}

// stateEntries lists the values of a plane beside the weights of every checkpoint tensor that has some.
// A tensor with a value for each element has its weight's shape; all others are lists.
func stateEntries(layer int, layout model.Layout, of optim.Placed) []*entry {
	p := statePlane(of.Plane)
	var out []*entry
	for k, t := range layout.Tensors {
		if t.Ref {
			continue
		}
		for i, st := range t.Stored {
			first, n := of.Piece(layout, k, i)
			if n == 0 {
				continue
			}
			e := &entry{tensor: tensor{name: p.prefix + st.Name, dtype: p.dtype, shape: t.StoredShape(i), bytes: of.DType.Bytes(n)},
				layer: layer, layout: t, elem: of.DType.Bytes(first), elems: n, plane: p}
			if listed := e.bytes / p.size(); listed != int64(st.Rows)*int64(t.Cols) {
				e.shape = []int64{listed}
			}
			out = append(out, e)
		}
	}
	return out
}

// newFile lays out a file: tensors of wider elements first, so that every one is
// aligned, else in the order given.
func newFile(name string, entries []*entry) *file {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b *entry) int { return int(dtypeSize[b.dtype] - dtypeSize[a.dtype]) })
	f := &file{name: name, header: headerBytes(entries), entries: entries}
	f.bytes = int64(len(f.header))
	for _, e := range entries {
		f.bytes += e.bytes
	}
	return f
}

// weightEntries lists the weights of all layers, in order.
func weightEntries(layouts []model.Layout, d DType) []*entry {
	var out []*entry
	for i, l := range layouts {
		out = append(out, entriesOf(i, l, d.plane())...)
	}
	return out
}

// modelFiles cuts each group of tensors into shards of at most maxBytes (a larger
// tensor is alone in one), in order; no shard has tensors of two groups.
func modelFiles(maxBytes int64, groups ...[]*entry) []*file {
	var shards [][]*entry
	for _, g := range groups {
		var size int64
		for i, e := range g {
			if i == 0 || size+e.bytes > maxBytes {
				shards, size = append(shards, nil), 0
			}
			shards[len(shards)-1] = append(shards[len(shards)-1], e)
			size += e.bytes
		}
	}
	var out []*file
	for i, entries := range shards {
		name := singleName
		if len(shards) > 1 {
			name = shardName(1, i+1, len(shards))
		}
		out = append(out, newFile(name, entries))
	}
	return out
}

// optimizerFile holds the planes beside the weights of a layer and, where these
// are saved in bf16, the lower halves that make them exact again.
func optimizerFile(layer int, layout model.Layout, planes []optim.Placed, d DType, zstd bool) *file {
	var entries []*entry
	for _, p := range planes {
		entries = append(entries, stateEntries(layer, layout, p)...)
	}
	if d == BF16 {
		entries = append(entries, entriesOf(layer, layout, planeLo)...)
	}
	f := newFile(optimizerName(layer, zstd), entries)
	f.zstd = zstd
	return f
}

// stateFiles plans the optimizer's files, one for each layer, in order.
func (o WriterOptions) stateFiles() []*file {
	if o.ModelOnly {
		return nil
	}
	var out []*file
	for i, l := range o.Layouts {
		if o.linked(i) {
			out = append(out, linkedFile(i, l, o.Planes.Of(l)))
			continue
		}
		out = append(out, optimizerFile(i, l, o.Planes.Of(l), o.SaveDType, o.Zstd))
	}
	return out
}

func optimizerName(layer int, zstd bool) string {
	name := fmt.Sprintf("optimizer/layer-%05d.safetensors", layer)
	if zstd {
		name += ".zst"
	}
	return name
}

// indexJSON is model.safetensors.index.json for shards.
func indexJSON(shards []*outFile) []byte {
	var bytes, params int64
	where := map[string]string{}
	for _, f := range shards {
		for _, e := range f.entries {
			where[e.name] = f.name
			bytes += e.bytes
			params += e.elems
		}
	}
	out, err := json.MarshalIndent(map[string]any{
		"metadata":   map[string]any{"total_size": bytes, "total_parameters": params},
		"weight_map": where,
	}, "", "  ")
	if err != nil {
		panic("checkpoint: an index does not marshal: " + err.Error())
	}
	return append(out, '\n')
}

// The names of the weights in a model directory: all in one file, or an index
// that says which shard holds what.
const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
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
