package plan

import (
	"mt/host/optim"
	"mt/model"
)

// This file models how much the option `compress: byteplane` shrinks data on disk, and the CPU time that it takes.

// packing describes how well and how fast one type of data is compressed. left is the compressed
// size divided by the original size. pack and unpack are the bytes a second that one core
// compresses and decompresses. The figures are measured (docs/decisions/2026-11-byteplane.md);
// other cores differ by a factor of two.
type packing struct{ left, pack, unpack float64 }

var (
	packedF32   = packing{0.83, 1.5e9, 2.9e9}
	packedBF16  = packing{0.67, 1.1e9, 2.1e9}
	packedNoise = packing{1, 8e9, 30e9} // lower halves: too random to compress, which a core finds out at this rate
	packedCodes = packing{1, 2e9, 30e9} // quantized moments: compressed, but the result is thrown away because it is hardly smaller
)

// Packed is the disk traffic of some data in bytes, and the seconds of one core for compressing
// (Pack) and decompressing (Unpack) it.
type Packed struct {
	Bytes        int64
	Pack, Unpack float64
}

// add adds data of the given size in bytes to p, compressed as by says.
func (p *Packed) add(bytes int64, by packing) {
	p.Bytes += int64(by.left * float64(bytes))
	p.Pack += float64(bytes) / by.pack
	p.Unpack += float64(bytes) / by.unpack
}

// PackedStaged returns the disk traffic of the data of layer l that an update reads and writes (StagedBytes),
// compressed if the run compresses.
func (r *Run) PackedStaged(l int) Packed {
	if !r.Compress {
		return Packed{Bytes: r.StagedBytes(l)}
	}
	p := r.PackedTile(l, r.ParamBytes(l))
	p.add(optim.Pages(optim.LoBytes(r.Layouts[l], r.Share(l))), packedNoise)
	for _, plane := range r.placed(l) {
		by := packedCodes
		if plane.DType == optim.F32 {
			by = packedF32
		}
		p.add(optim.Pages(plane.ShareBytes(r.Layouts[l], r.Share(l))), by)
	}
	return p
}

// PackedTile returns the disk traffic of reading or writing some bytes of layer l's tile,
// compressed if the run compresses.
func (r *Run) PackedTile(l int, bytes int64) (p Packed) {
	switch {
	case !r.Compress:
		p.Bytes = bytes
	case bf16Tile(r.Layouts[l]):
		p.add(bytes, packedBF16)
	default:
		p.add(bytes, packedF32)
	}
	return p
}

// bf16Tile reports whether the tile of a layer has its matrices in bf16, which compress better than
// fp32.
func bf16Tile(l model.Layout) bool {
	for _, t := range l.Tensors {
		if t.BF16 {
			return true
		}
	}
	return false
}

// packers is the number of chunks that are compressed or decompressed at once (host/extents), each by a coder of its
// own. coderBytes is the memory of one coder.
const (
	packers    = 16
	coderBytes = 512 << 10
)

// packMemory returns the host memory in bytes that compression needs if state is on disk. tiles says whether weights
// are on disk too. 0: the run does not compress.
func (r *Run) packMemory(tiles bool) int64 {
	switch each := packers * (r.ChunkBytes() + coderBytes); {
	case !r.Compress:
		return 0
	case tiles:
		return 2 * each
	default:
		return each
	}
}
