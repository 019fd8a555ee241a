package extents

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// worker is the memory of one goroutine that moves chunks and computes checksums.
type worker struct {
	scratch []byte // aligned buffer of chunk size for a compressed chunk; nil without Compress
	coder   *coder
}

// ScratchBytes returns the most memory, in bytes, that compression needs for chunks of this many bytes.
func ScratchBytes(chunk int64) int64 { return ringDepth * chunk }

// takeScratch allocates the scratch memory of all workers, if Options.Compress is set.
func (e *Files) takeScratch(workers []worker) (err error) {
	if !e.o.Compress {
		return nil
	}
	n := int(e.o.Chunk)
	e.scratch, err = unix.Mmap(-1, 0, len(workers)*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("memory for compressed chunks: %w", err)
	}
	for i := range workers {
		workers[i] = worker{e.scratch[i*n : (i+1)*n], new(coder)}
	}
	return nil
}

// pack returns the bytes to write for a chunk: its compressed form if that saves at least a sixteenth, otherwise the
// chunk itself. The result's size is a multiple of BlockBytes.
func (w *worker) pack(chunk []byte) []byte {
	if w.scratch == nil {
		return chunk
	}
	room := (len(chunk) - len(chunk)/16) / BlockBytes * BlockBytes
	n, ok := w.coder.encode(w.scratch[:room], chunk)
	if !ok {
		return chunk
	}
	end := (n + BlockBytes - 1) / BlockBytes * BlockBytes
	clear(w.scratch[n:end])
	return w.scratch[:end]
}
