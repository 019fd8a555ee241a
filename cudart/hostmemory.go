package cudart

import (
	"slices"
	"sync"
)

// hostMemory says which memory is registered, and for the contexts of which
// devices. CUDA refuses to register memory a second time, although one portable
// registration serves all devices; so memory is registered for its first user and
// unregistered after its last. Meanwhile other users wait, so that none copies from
// memory that is not pinned yet.
type hostMemory struct {
	mu    sync.Mutex
	parts map[uintptr]*hostPart // by address
}

// hostPart is a registered run of bytes.
type hostPart struct {
	bytes int
	users []Context
}

// register notes that ctx uses b. It makes call for the first user of b, and where
// b is not registered as one whole range, so that CUDA decides.
func (h *hostMemory) register(ctx Context, b []byte, call func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.parts[address(b)]; p != nil && p.bytes == len(b) && !slices.Contains(p.users, ctx) {
		p.users = append(p.users, ctx)
		return nil
	}
	if err := call(); err != nil {
		return err
	}
	if h.parts == nil {
		h.parts = map[uintptr]*hostPart{}
	}
	h.parts[address(b)] = &hostPart{len(b), []Context{ctx}}
	return nil
}

// unregister removes ctx from the users of the range that begins where b does, and
// makes call when no user is left.
func (h *hostMemory) unregister(ctx Context, b []byte, call func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.parts[address(b)]; p != nil && slices.Contains(p.users, ctx) {
		if p.users = slices.DeleteFunc(p.users, func(u Context) bool { return u == ctx }); len(p.users) > 0 {
			return nil
		}
		delete(h.parts, address(b))
	}
	return call()
}
