package host

// Home gives layers to whoever works on them, and takes them back: the optimizer,
// who collects rows, who writes a checkpoint. Between Acquire and Release the
// layer is in memory. What streams to the device, the tiles, always is.
type Home interface {
	// Acquire gives layer i, which several may have at a time. The error says
	// why it cannot be had.
	Acquire(i int) (*LayerState, error)
	// Release takes it back: nobody who acquired it before uses it any more.
	Release(i int)
	// Tile is what streams of layer i.
	Tile(i int) []byte
}

// Acquire implements Home: all layers are in memory all the time.
func (s *Store) Acquire(i int) (*LayerState, error) { return s.Layers[i], nil }

// Release implements Home.
func (s *Store) Release(int) {}

// Tile implements Home.
func (s *Store) Tile(i int) []byte { return s.Layers[i].Tile }
