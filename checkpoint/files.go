package checkpoint

import (
	"encoding/json"
	"fmt"
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
