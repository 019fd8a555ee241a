package cudart

import (
	"slices"
	"sync"
)

// hostMemory tracks registered host memory and the contexts that use it. CUDA refuses to register memory twice,
// although one portable registration serves all devices. Memory is therefore registered for its first user and
// unregistered after its last. During the registration other users of the same memory wait, so that nobody copies from
// memory that is not pinned yet. Other memory is registered concurrently.
type hostMemory struct {
	mu    sync.Mutex
	parts map[uintptr]*hostPart // by address
}

// hostPart is one byte range. It is registered while it has users.
type hostPart struct {
	mu    sync.Mutex // held while the range is registered or unregistered
	bytes int
	users []Context
}

// part returns the range that starts at b.
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

// register adds ctx to the users of b. It calls call for the first user. It also calls call if the registered range at
// this address differs from b or ctx already uses it, so that CUDA decides.
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

// unregister removes ctx from the users of the range that starts at b. It calls call when no user is left.
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
