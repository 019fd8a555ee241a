package cudart

import (
	"slices"
	"sync"
)

// hostMemory tracks registered (pinned) host memory and its users: contexts, one for each device.
// CUDA refuses to register memory twice, although one portable registration serves all devices. So
// memory is registered with CUDA for its first user and unregistered after its last.
//
// During a registration, other users of the same range wait, so that no one copies from memory that
// is not pinned yet. Different ranges are registered concurrently.
type hostMemory struct {
	mu    sync.Mutex
	parts map[uintptr]*hostPart // by address
}

// hostPart is one range of host memory. It is registered with CUDA as long as it has users.
type hostPart struct {
	mu    sync.Mutex // held while the range is registered or unregistered
	bytes int
	users []Context
}

// part returns the hostPart for memory that starts where b does, and makes one if there is none.
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

// register adds ctx to the users of b. For the first user it calls call, which registers b with
// CUDA. It also calls call if the range registered at this address has another length, or if ctx
// already uses it; CUDA then returns the right error.
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

// unregister removes ctx from the users of the range that starts at b. When no user is left, it calls call, which
// unregisters the range with CUDA.
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
