//go:build !unix

package host

func blank(bytes int64) ([]byte, error) { return make([]byte, bytes), nil }

// FreeBlank releases memory of Blank.
func FreeBlank([]byte) {}
