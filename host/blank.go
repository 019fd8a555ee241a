package host

import "fmt"

// Blank is host memory of which nothing is resident and which reads as zeros: for plans and
// predictions, where sizes matter and content does not. A write to it is a fault of the
// process. Give it back by FreeBlank.
func Blank(bytes int64) ([]byte, error) {
	b, err := blank(max(bytes, pageBytes))
	if err != nil {
		return nil, fmt.Errorf("host: %d bytes of address space: %w", bytes, err)
	}
	return b[:bytes], nil
}
