package host

// Home gives access to layers whose state is needed, for example by the optimizer and the checkpoint writer. Tiles,
// which stream to the device, are in memory all the time, unless they are on disk too (Tier.TileOnDisk). State on disk,
// and a tile on disk, are in memory from Fetch to Drop. Only then can such a layer be acquired.
type Home interface {
	// Acquire returns layer i for use until Release. Several users may hold a layer at once. The error says why the
	// layer is not available.
	Acquire(i int) (*LayerState, error)
	// Release ends one Acquire of layer i. The holder must not use the layer afterwards.
	Release(i int)
	// Tile returns the memory of layer i that streams to the device; nil if the tile is on disk.
	Tile(i int) []byte
	// ReadTile reads the bytes [from, from+len(into)) of the last flushed tile of layer i from disk. into must be
	// aligned to 4 KiB. Both ends must be chunk boundaries of the extent (extents.Options.Chunk), whose size is
	// optim.Pages(Layout.TileBytes).
	ReadTile(i int, from int64, into []byte) error
	// Fetch reads the state of layer i from disk into a state slot. Afterwards the layer can be acquired.
	Fetch(i, slot int) error
	// Flush writes the state of layer i from its state slot to disk.
	Flush(i int) error
	// PutGrad writes the gradient of layer i to disk, where it waits until the norm of all gradients is known. The
	// memory from must be aligned to 4 KiB and have the size in Tier.Grads.
	PutGrad(i int, from []byte) error
	// FetchGrad reads the last written gradient of layer i into the layer's state slot.
	FetchGrad(i int) error
	// Grad returns the gradient of layer i in its state slot.
	Grad(i int) []byte
	// Drop frees the state slot of layer i, which must not be acquired. Changes since the last Flush are lost.
	Drop(i int)
	// Spared returns the disk traffic saved by compression so far, in bytes.
	Spared() (read, written int64)
	// Settle drops all layers in state slots. It first flushes the layers that were updated since their last flush.
	Settle() error
}
