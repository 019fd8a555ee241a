package host

// Home lends layers to those who work on them, such as the optimizer, whoever
// collects rows, and whoever writes a checkpoint. Between Acquire and Release the
// layer is in memory. The tiles, which stream to the device, are in memory all the
// time.
type Home interface {
	// Acquire lends layer i, which may be lent several times at the same time. The
	// error says why it cannot be had.
	Acquire(i int) (*LayerState, error)
	// Release ends one Acquire of layer i. Whoever made it must not use the layer
	// any more.
	Release(i int)
	// Tile is the memory of layer i that streams to the device.
	Tile(i int) []byte
}

// Acquire implements Home: all layers are in memory all the time.
func (s *Store) Acquire(i int) (*LayerState, error) { return s.Layers[i], nil }

// Release implements Home.
func (s *Store) Release(int) {}

// Tile implements Home.
func (s *Store) Tile(i int) []byte { return s.Layers[i].Tile }
