package host

// Home gives access to layers whose state is needed, for example by the optimizer and the checkpoint writer. A tile,
// which streams to the device, is always in memory, unless it is on disk (Tier.TileOnDisk). State and tiles on disk are
// in memory only from Fetch to Drop, and only then can their layer be acquired.
type Home interface {
	// Acquire returns layer i for use until Release. Several users may hold a layer at once. It returns an error if the
	// layer's state is not in memory.
	Acquire(i int) (*LayerState, error)
	// Release ends one Acquire of layer i. The holder must not use the layer afterwards.
	Release(i int)
	// Tile returns the memory of layer i that streams to the device; nil if the tile is on disk.
	Tile(i int) []byte
	// ReadTile reads the bytes [from, from+len(into)) of layer i's tile from disk, as last flushed.
	// The tile is stored as an extent, which is read in chunks with checksums. So the range must
	// begin and end at chunk boundaries (extents.Options.Chunk) or at the extent's end. The extent
	// has optim.Pages(Layout.TileBytes) bytes. into must be aligned to 4 KiB.
	ReadTile(i int, from int64, into []byte) error
	// Fetch reads the state of layer i, and its tile if that is on disk, into the state slot with this number.
	// Afterwards the layer can be acquired.
	Fetch(i, slot int) error
	// Flush writes the state of layer i, and its tile if that is on disk, from the state slot to disk.
	Flush(i int) error
	// PutGrad writes the gradient of layer i to disk, where it waits until the norm of all gradients is known. from
	// holds the gradient; it must be aligned to 4 KiB and have the size in Tier.Grads.
	PutGrad(i int, from []byte) error
	// FetchGrad reads the gradient of layer i, as PutGrad last wrote it, from disk into the layer's state slot.
	FetchGrad(i int) error
	// Grad returns the gradient of layer i in its state slot.
	Grad(i int) []byte
	// Drop frees the state slot of layer i. Nobody may hold the layer. Changes since the last Flush are lost.
	Drop(i int)
	// Spared returns the bytes that compression has saved so far in reads from disk and in writes to disk.
	Spared() (read, written int64)
	// Settle frees all state slots. It first flushes each layer that was updated since its last flush.
	Settle() error
}
