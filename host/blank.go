package host

import "fmt"

// Blank returns host memory that reads as zeros and has no resident pages. It serves plans and predictions, which need
// sizes but no content. A write crashes the process. FreeBlank releases the memory.
func Blank(bytes int64) ([]byte, error) {
	b, err := blank(max(bytes, pageBytes))
	if err != nil {
		return nil, fmt.Errorf("host: %d bytes of address space: %w", bytes, err)
	}
	return b[:bytes], nil
}
