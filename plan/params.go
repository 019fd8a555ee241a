package plan

import (
	"mt/host/optim"
	"mt/layers"
	"mt/model"
)

// This file chooses the layers whose weights are on disk too. That happens if memory is too small even with all state
// on disk.
//
// For every fetch, such a layer's tile is read into the host buffer of its weight slot (param buffer). For the update,
// the tile is read and written together with the state. The weight slots therefore bound the number of tiles read
// ahead.

// weightsOnDisk reports whether the tile of layer l is on disk.
func (r *Run) weightsOnDisk(l int) bool { return r.WeightsOnDisk != nil && r.WeightsOnDisk[l] }

// ParamBytes returns the size of layer l's tile on disk; 0: the tile is in memory.
func (r *Run) ParamBytes(l int) int64 {
	if !r.weightsOnDisk(l) {
		return 0
	}
	return optim.Pages(r.Layouts[l].TileBytes)
}

// StagedBytes returns how many bytes of layer l are read from disk and written back for an update, without a gradient:
// its state and, if they are on disk, its weights.
func (r *Run) StagedBytes(l int) int64 { return r.ExtentBytes(l) + r.ParamBytes(l) }

// paramChunk is the chunk size of weights on disk unless the run sets another. It is small compared
// with an expert's tile, and large enough for a disk to read at its full rate.
const paramChunk = 1 << 20

// ChunkBytes returns the chunk size of weights on disk. Each chunk has a checksum, so reads consist of whole chunks.
func (r *Run) ChunkBytes() int64 {
	if r.ParamChunk > 0 {
		return r.ParamChunk
	}
	return paramChunk
}

// ParamSpan returns the range of the layer's file to read for tile t, which may be only an expert
// of the layer. It begins at byte from and consists of whole chunks.
func (r *Run) ParamSpan(t layers.Tile) (from, bytes int64) {
	c := t.Copies[0]
	from = c.From / r.ChunkBytes() * r.ChunkBytes()
	return from, min(r.inChunks(c.From+c.Bytes), r.ParamBytes(t.Layer)) - from
}

// inChunks rounds a size in bytes up to whole chunks of weights on disk.
func (r *Run) inChunks(bytes int64) int64 {
	return (bytes + r.ChunkBytes() - 1) / r.ChunkBytes() * r.ChunkBytes()
}

// ParamBufferBytes returns the size of a param buffer, the host memory into which a tile is read from disk. It fits the
// largest tile of r's lane at any offset in a chunk. 0: no tile of the lane is on disk.
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

// paramBuffersBytes returns the size of the param buffers of all lanes.
func (r *Run) paramBuffersBytes() (sum int64) {
	for _, v := range r.views() {
		sum += int64(r.Depths.WeightSlots) * v.ParamBufferBytes()
	}
	return sum
}

// ableToLeave reports whether the tile of layer l can be on disk. No other layer may copy from such
// a tile, and its parts must use the shared weight slots. Decoder blocks, with all their experts,
// meet both conditions.
func (r *Run) ableToLeave(l int) bool {
	kind := r.Layouts[l].Kind
	return kind != model.Embedding && kind != model.Head && r.extents()[l] > 0
}

// blocks returns the layers for which ableToLeave is true: state, gradient and weights can all be
// on disk.
func (r *Run) blocks() (out []int) {
	for l := range r.Layouts {
		if r.ableToLeave(l) {
			out = append(out, l)
		}
	}
	return out
}

// leaveAll chooses which tiles go to disk as leave does, after moving the gradients of all blocks
// to disk.
func (r *Run) leaveAll(spare int64, slots int) onDisks {
	return r.leave(spare+r.putGradsOnDisk(r.blocks()), slots)
}

// leave chooses the tiles on disk if state on disk alone does not suffice. It moves all states that
// allStates selects, and then the fewest tiles that make spare non-negative. Argument spare is the
// free host memory in bytes (negative: missing), and slots the number of state slots.
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
