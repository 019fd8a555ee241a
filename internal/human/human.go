package human

import "github.com/dustin/go-humanize"

// Bytes is n bytes as "2.0 GiB"; less than none is none.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
