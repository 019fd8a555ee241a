package emu

import "fmt"

// kind is the type of the object behind a handle. A handle combines the kind, the driver's number and the object's
// number. So a handle never equals an address or a handle of another kind or driver, and confusing them is found.
type kind uint8

const (
	kindStream kind = iota + 1
	kindEvent
	kindContext
	kindModule
	kindFunction
	kindBlas
	kindDesc
	kindLayout
	kindPreference
	kindML
	kinds
)

var kindNames = [...]string{"", "stream", "event", "context", "module", "function", "cublasLt handle",
	"matmul descriptor", "matrix layout", "matmul preference", "nvidia-ml device"}

func (k kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return "object"
}

// counted reports whether the program must release objects of this kind one by one, so that Live lists those left.
func (k kind) counted() bool {
	return k != kindContext && k != kindFunction && k != kindML
}

const idMask = 1<<32 - 1

func handleKind(h uint64) kind { return kind(h >> 48) }

func handleName(h uint64) string { return fmt.Sprintf("%s #%d", handleKind(h), h&idMask) }

// keep registers the object v of kind k with the driver, and returns a new handle for it. d.mu is
// held.
func (d *Driver) keep(k kind, v any) uint64 {
	d.lastID[k]++
	h := uint64(k)<<48 | uint64(d.number)<<32 | d.lastID[k]
	d.objects[h] = v
	return h
}

// find returns the object of kind k behind the handle h. If there is none, it returns false and
// records a fault of the C function named call. d.mu is held.
func find[T any](d *Driver, k kind, h uint64, call string) (T, bool) {
	if v, ok := d.objects[h].(T); ok && handleKind(h) == k {
		return v, true
	}
	switch {
	case h == 0:
		d.fault(Handle, "%s: the %s is null", call, k)
	case h>>32 == uint64(k)<<16|uint64(d.number) && h&idMask <= d.lastID[k]:
		d.fault(Handle, "%s: %s was destroyed", call, handleName(h))
	default:
		d.fault(Handle, "%s: %#x is no %s of this driver", call, h, k)
	}
	var none T
	return none, false
}
