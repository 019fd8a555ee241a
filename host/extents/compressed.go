package extents

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// worker is what one of the goroutines that check and move chunks has for itself.
type worker struct {
	scratch []byte // of a chunk's size, aligned, for a chunk in fewer bytes; nil without Compress
	coder   *coder
}

// ScratchBytes is the memory that Compress takes for chunks of so many bytes, at most.
func ScratchBytes(chunk int64) int64 { return ringDepth * chunk }

// takeScratch takes the memory of workers, with Compress.
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

// pack returns what to write of a chunk: fewer bytes where that spares a sixteenth of them, or the chunk itself. Both are multiples of
// BlockBytes.
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
