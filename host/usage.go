package host

import (
	"sync"

	"mt/base/accounts"
)

var usage struct {
	sync.Mutex
	accounts.Used
}

// Usage returns the memory in bytes that the arenas of this process hold, by purpose.
func Usage() accounts.Used {
	usage.Lock()
	defer usage.Unlock()
	return usage.Used
}

// count adds bytes, which may be negative, to the memory counted for purpose p.
func count(p accounts.Purpose, bytes int64) {
	usage.Lock()
	defer usage.Unlock()
	usage.Count(p, bytes)
}
