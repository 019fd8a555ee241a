package cudart

import (
	"slices"
	"sync"
)

// hostMemory is what is registered, and for the contexts of which devices. CUDA
// refuses to register memory a second time, although one registration that is
// portable serves all devices. While it is registered or unregistered the others
// wait, so that none copies from memory that is not pinned yet.
type hostMemory struct {
	mu    sync.Mutex
	parts map[uintptr]*hostPart // by address
}

// hostPart is a registered run of bytes.
type hostPart struct {
	bytes int
	users []Context
}

// register notes that ctx uses b, with call for the first and for memory that
// another registration than one of just b may have.
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

// unregister takes ctx off the users of what begins where b does, with call for the
// last.
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
