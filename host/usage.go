package host

import (
	"sync"

	"mt/base/accounts"
)

var usage struct {
	sync.Mutex
	accounts.Used
}

// Usage returns the memory that the arenas of this process hold.
func Usage() accounts.Used {
	usage.Lock()
	defer usage.Unlock()
	return usage.Used
}

// count adds bytes to the memory counted for purpose p. A negative number subtracts.
func count(p accounts.Purpose, bytes int64) {
	usage.Lock()
	defer usage.Unlock()
	usage.Count(p, bytes)
}
