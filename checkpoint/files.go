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

// defaultShardBytes is the default size of a shard, as in save_pretrained.
const defaultShardBytes = 5_000_000_000

// entry is a tensor to be read or written, and the memory of its values. This is a range of
// elements of a parameter, or of a plane that the parameter has.
type entry struct {
	tensor
	layer  int // index of the layer, fromFile or passedOver
	layout model.TensorLayout
	elem   int64 // first element in the parameter; for a plane of the optimizer, the first byte in the plane
	elems  int64
	plane  plane
	from   *stored      // not nil: the values come from a tensor of another file
	placed []placed     // not nil: the rows of parameters that this tensor holds (placed.go); layout and elem are unused
	quant  *requantized // not nil: the tensor is computed from the weights, which are quantized anew
	scales bool         // with quant: the tensor holds the scales, not the codes
	asRead bool         // with from: copied only if weights are saved as they were read
}

// fromFile and passedOver are values of entry.layer for tensors that belong to no layer. A tensor
// with fromFile is copied from a file of another model directory. A tensor with passedOver is read
// only for its checksum.
const (
	fromFile   = -1
	passedOver = -2
)

// file is the plan of one safetensors file: what it will contain, in which order and how large.
type file struct {
	name    string // relative to the directory, with slashes
	header  []byte
	entries []*entry
	bytes   int64 // before compression
	zstd    bool
	linked  bool // the file exists already and gets a second name (linked.go)
}

// entriesOf lists the entries of a layer for plane p, which is the weights in some dtype or their
// lower halves. Every stored tensor of every weight has an entry. A weight that belongs to another
// layer (tied, Ref) has none. A tensor with SavedF32 is fp32 instead of bf16 and has no lower
// halves. In the plane of lower halves, each parameter has a tensor of its own, even if its weights
// share a tensor.
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

// stateEntries lists the entries of one plane of the optimizer's state, one per tensor that has values in this
// plane. A plane with one value per element has the weight's shape. Any other plane, such as one value per block of
// elements, is saved as a one-dimensional list.
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

// newFile lays out a file. Tensors with wider elements come first, so that all are aligned; otherwise the order is
// kept.
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

// weightEntries lists the entries of the weights of all layers, which are saved in type d.
func weightEntries(layouts []model.Layout, d DType) []*entry {
	var out []*entry
	for i, l := range layouts {
		out = append(out, entriesOf(i, l, d.plane())...)
	}
	return out
}

// modelFiles cuts each group of tensors into shards of at most maxBytes, in order. A larger tensor has a shard of
// its own. No shard has tensors of two groups.
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

// optimizerFile plans a layer's optimizer file: the optimizer's planes and, if the weights are saved in bf16, their
// lower halves, which make them exact again.
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

// stateFiles plans the optimizer's files, one per layer, in the order of the layers. It plans none
// if only the model is saved.
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

// indexJSON returns the content of model.safetensors.index.json, which names the shard of every tensor.
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

// The names of the weights in a model directory: one file, or an index of shards.
const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// If a directory has both a single file and an index of shards, readers take the single file. So
// one rename switches readers from an older model to a new one. It is the rename of the single
// file, or of an index that names no shard of the older index.

// shardName returns the name of shard i, counted from 1, of a model that has of shards in total. version is 1 for
// the first model in a directory and larger for later ones, so that a new model's shards do not overwrite an older
// one's. Version 1 is left out of the name.
func shardName(version, i, of int) string {
	v := ""
	if version > 1 {
		v = fmt.Sprintf("v%d-", version)
	}
	return fmt.Sprintf("model-%s%05d-of-%05d.safetensors", v, i, of)
}

var shardNames = regexp.MustCompile(`^model-(v\d+-)?\d{5,}-of-\d{5,}\.safetensors$`)

// IsWeights reports whether WriteModel or CopyModel may have written weights to a file of this name.
func IsWeights(name string) bool {
	return name == singleName || name == indexName || shardNames.MatchString(name)
}

// freshNames sets the names of files, the shards of a new model in dir. It takes the lowest version (see shardName)
// whose names are not in dir's present index. A single file keeps its name.
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

// indexed returns the set of shards that dir's index names. If the index cannot be read, it returns all files in
// dir, so that none of them is overwritten.
func indexed(dir string) map[string]bool {
	used := map[string]bool{}
	old := source{dir: dir}
	weightMap, err := old.readIndex()
	if err != nil {
		entries, _ := os.ReadDir(dir) // if the directory cannot be read, a later call fails
		for _, e := range entries {
			used[e.Name()] = true
		}
	}
	for _, shard := range weightMap {
		used[shard] = true
	}
	return used
}

// show makes the new model visible: it moves the files to their places and then removes the older model's files. The
// file by which readers find the weights moves last.
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

// move moves a file from the temporary directory to its place.
func (m *modelWriter) move(name string) error {
	return m.disk.do("rename", name, m.disk.fs.Rename(m.disk.path(name), filepath.Join(m.dir, name)))
}

func (m *modelWriter) syncDir() error {
	return opError("sync directory", m.dir, m.disk.fs.SyncDir(m.dir))
}

// removeOlder removes the files of an older model, except those in names. It keeps directories.
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

// older returns the names in the directory that an older model may have left. These are files of weights and, if
// the directory is for this model alone (m.alone), companions.
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

// Space on disk that a save takes besides its tensors. Every file ends in a partly used block.
// Manifest and index have some lines of text for every tensor.
const (
	blockBytes  = 4 << 10
	lineBytes   = 256
	fewBytes    = 64 << 10 // config.json, state, directories
	fewInBlocks = 16       // number of such files; each ends in a block of its own
)

// CheckpointBytes returns an upper bound on a checkpoint's bytes on disk. Linked files count too. The run shares
// such a file only until it writes the state again, into a new file.
func (o WriterOptions) CheckpointBytes() int64 {
	o = o.defaults()
	files := append(o.files(), o.stateFiles()...)
	if f := o.lowerFile(); f != nil {
		files = append(files, f)
	}
	return o.room(files)
}

// ModelBytes returns an upper bound on the bytes that WriteModel writes.
func (o WriterOptions) ModelBytes() int64 {
	o = o.defaults()
	return o.room(o.files())
}

// room returns an upper bound on the bytes that files take on disk, with config.json, the extra files and other
// small files of a save.
func (o WriterOptions) room(files []*file) int64 {
	n := o.Extra + fewBytes + fewInBlocks*blockBytes
	for _, f := range files {
		n += blocks(f.bytes) + int64(len(f.entries))*lineBytes
	}
	return n
}

func blocks(bytes int64) int64 { return (bytes + blockBytes - 1) / blockBytes * blockBytes }

// Held returns the sizes in bytes of the checkpoints in output, oldest first, and of the leftovers of unfinished
// saves. A missing directory holds none.
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

// treeBytes returns the size in bytes of the files below path. Files that cannot be examined count as 0.
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
