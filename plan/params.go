package plan

import (
	"mt/host/optim"
	"mt/layers"
	"mt/model"
)

// This file decides of which layers the weights are on disks too: where memory is too small even with all states there.
//
// Such a layer's tile is read once for every fetch, into the host buffer of the weight slot that it is fetched into
// (param buffer), and read and written with the state when the layer is updated. So weight slots bound how
// many are read ahead.

// weightsOnDisk says whether the tile of layer l is on a disk.
func (r *Run) weightsOnDisk(l int) bool { return r.WeightsOnDisk != nil && r.WeightsOnDisk[l] }

// ParamBytes is the size of the tile of layer l on a disk; 0: it is in memory.
func (r *Run) ParamBytes(l int) int64 {
	if !r.weightsOnDisk(l) {
		return 0
	}
	return optim.Pages(r.Layouts[l].TileBytes)
}

// StagedBytes is what layer l, which is away, takes of a state slot beside its gradient, and what is read and written for its update.
func (r *Run) StagedBytes(l int) int64 { return r.ExtentBytes(l) + r.ParamBytes(l) }

// paramChunk is small beside an expert and large for a disk.
const paramChunk = 1 << 20

// ChunkBytes is what weights on disks are read in multiples of, in bytes: each has a checksum.
func (r *Run) ChunkBytes() int64 {
	if r.ParamChunk > 0 {
		return r.ParamChunk
	}
	return paramChunk
}

// ParamSpan says which bytes of its layer's tile are read for tile t, one that is on a disk: whole chunks, from byte from on.
func (r *Run) ParamSpan(t layers.Tile) (from, bytes int64) {
	c := t.Copies[0]
	from = c.From / r.ChunkBytes() * r.ChunkBytes()
	return from, min(r.inChunks(c.From+c.Bytes), r.ParamBytes(t.Layer)) - from
}

// inChunks is the next multiple of a chunk.
func (r *Run) inChunks(bytes int64) int64 {
	return (bytes + r.ChunkBytes() - 1) / r.ChunkBytes() * r.ChunkBytes()
}

// ParamBufferBytes is the size of a param buffer of r's lane: what the largest of its tiles takes wherever it begins; 0: it
// has none.
func (r *Run) ParamBufferBytes() (most int64) {
	for l := range r.WeightsOnDisk {
		if !r.has(l) || !r.weightsOnDisk(l) {
			continue
		}
		for _, k := range r.Kind(l).Largest(r.Spec, r.Layouts[l]) {
			t := r.Kind(l).Part(r.Spec, r.Layouts[l], k)
			most = max(most, min(r.ParamBytes(l), r.inChunks(t.Bytes())+r.ChunkBytes()))
		}
	}
	return most
}

// paramBuffersBytes is what the param buffers of all lanes take.
func (r *Run) paramBuffersBytes() (sum int64) {
	for _, v := range r.views() {
		sum += int64(r.Depths.WeightSlots) * v.ParamBufferBytes()
	}
	return sum
}

// ableToLeave says whether the tile of layer l can be on a disk: no other layer's is copied from it, and its parts take
// turns with others in the weight slots. These are the decoder blocks, with all their experts.
func (r *Run) ableToLeave(l int) bool {
	kind := r.Layouts[l].Kind
	return kind != model.Embedding && kind != model.Head && r.extents()[l] > 0
}

// blocks are the layers of which all can be on a disk.
func (r *Run) blocks() (out []int) {
	for l := range r.Layouts {
		if r.ableToLeave(l) {
			out = append(out, l)
		}
	}
	return out
}

// leaveAll is leave with all gradients of blocks waiting on disks.
func (r *Run) leaveAll(spare int64, slots int) onDisks {
	return r.leave(spare+r.putGradsOnDisk(r.blocks()), slots)
}

// leave decides which tiles are on disks, where states alone do not do: with all states away that allStates sends, as few tiles as
// make spare positive.
func (r *Run) leave(spare int64, slots int) (d onDisks) {
	spare = r.allStates(spare-r.packMemory(true), slots)
	blocks := r.blocks()
	for n := 1; n <= len(blocks); n++ {
		r.WeightsOnDisk = make([]bool, len(r.Layouts))
		left := spare
		for k := range n {
			l := blocks[k*len(blocks)/n]
			r.WeightsOnDisk[l] = true
			left += r.ParamBytes(l)
		}
		if d = r.onDisks(left - int64(slots)*r.StateSlotBytes() - r.paramBuffersBytes()); d.left >= 0 {
			break
		}
	}
	return d
}
