package host

// Home lends layers to those who work on their state, such as the optimizer and whoever
// writes a checkpoint. The tiles, which stream to the device, are in memory all the time, unless
// they are on disks too (Tier.Tiles). The state of a layer that is away, and its tile where that is, are in memory
// from Fetch to Drop, and only then the layer can be acquired.
type Home interface {
	// Acquire lends layer i, which may be lent several times at the same time. The
	// error says why it cannot be had.
	Acquire(i int) (*LayerState, error)
	// Release ends one Acquire of layer i. Whoever made it must not use the layer
	// any more.
	Release(i int)
	// Tile is the memory of layer i that streams to the device; of one that is on a disk, nil.
	Tile(i int) []byte
	// ReadTile reads the tile of layer i, as it was last flushed, from its disk: from byte from on as much as into
	// has, which is aligned to 4 KiB. Both ends are those of a chunk of the extent (extents.Options.Chunk), whose size is
	// optim.Pages(Layout.TileBytes).
	ReadTile(i int, from int64, into []byte) error
	// Fetch reads the state of layer i, which is away, from its disk into a state slot. The layer can be
	// acquired then.
	Fetch(i, slot int) error
	// Flush writes the state of layer i from its state slot to the disk.
	Flush(i int) error
	// PutGrad writes the gradient of layer i, which is one that waits on a disk, to that disk. It is in from, aligned to 4 KiB and as
	// large as Tier.Grads says.
	PutGrad(i int, from []byte) error
	// FetchGrad reads the gradient of layer i, as it was put last, into the state slot that the layer is in.
	FetchGrad(i int) error
	// Grad is the gradient of layer i in its state slot.
	Grad(i int) []byte
	// Drop frees the state slot of layer i, which nobody has acquired; what was not flushed is lost.
	Drop(i int)
	// Spared is how many bytes fewer than those in memory were read from disks and written to them so far, because
	// they are compressed there.
	Spared() (read, written int64)
	// Settle drops all layers that are in state slots, and flushes those that were updated and not flushed since.
	Settle() error
}
