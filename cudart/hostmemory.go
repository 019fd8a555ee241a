package cudart

import (
	"slices"
	"sync"
)

// hostMemory says which memory is registered, and for the contexts of which
// devices. CUDA refuses to register memory a second time, although one portable
// registration serves all devices; so memory is registered for its first user and
// unregistered after its last. Meanwhile other users of the same memory wait, so that
// none copies from memory that is not pinned yet; other memory is registered beside it.
type hostMemory struct {
	mu    sync.Mutex
	parts map[uintptr]*hostPart // by address
}

// hostPart is a run of bytes that is registered, or was if it has no users.
type hostPart struct {
	mu    sync.Mutex // held while the run is being registered or unregistered
	bytes int
	users []Context
}

// part is the run that begins where b does.
func (h *hostMemory) part(b []byte) *hostPart {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.parts[address(b)]
	if p == nil {
		if h.parts == nil {
			h.parts = map[uintptr]*hostPart{}
		}
		p = &hostPart{}
		h.parts[address(b)] = p
	}
	return p
}

// register notes that ctx uses b. It makes call for the first user of b, and where
// b is not registered as one whole range, so that CUDA decides.
func (h *hostMemory) register(ctx Context, b []byte, call func() error) error {
	p := h.part(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.users) > 0 && p.bytes == len(b) && !slices.Contains(p.users, ctx) {
		p.users = append(p.users, ctx)
		return nil
	}
	if err := call(); err != nil {
		return err
	}
	p.bytes, p.users = len(b), []Context{ctx}
	return nil
}

// unregister removes ctx from the users of the range that begins where b does, and
// makes call when no user is left.
func (h *hostMemory) unregister(ctx Context, b []byte, call func() error) error {
	p := h.part(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.users, ctx) {
		if p.users = slices.DeleteFunc(p.users, func(u Context) bool { return u == ctx }); len(p.users) > 0 {
			return nil
		}
	}
	return call()
}
