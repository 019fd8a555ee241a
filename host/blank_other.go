//go:build !unix

package host

func blank(bytes int64) ([]byte, error) { return make([]byte, bytes), nil }

// FreeBlank releases memory that Blank has returned. Here Blank uses the heap, so there is nothing
// to do.
func FreeBlank([]byte) {}
