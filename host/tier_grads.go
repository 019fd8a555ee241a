package host

// This file handles gradients that wait on disk until the norm over all layers is known. In a state
// slot, the gradient lies behind the state and the tile; Flush does not write it.

// gradBytes returns the bytes of layer i's gradient in a state slot and on disk; 0 if it stays in memory.
func (t Tier) gradBytes(i int) int64 {
	if t.Grads == nil {
		return 0
	}
	return t.Grads[i]
}

// PutGrad implements Home.
func (s *Store) PutGrad(i int, from []byte) error { return s.tier.GradExtents.Write(i, from) }

// FetchGrad implements Home.
func (s *Store) FetchGrad(i int) error { return s.tier.GradExtents.Read(i, s.Grad(i)) }

// Grad implements Home.
func (s *Store) Grad(i int) []byte {
	slot := s.slotOf[i]
	tile, state := s.inSlot(i, slot)
	at := int64(len(tile) + len(state))
	return s.slots[slot][at : at+s.tier.gradBytes(i)]
}
