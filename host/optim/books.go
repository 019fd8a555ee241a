//go:build !noasm && (amd64 || arm64)

package optim

// ofValues and ofTable turn kernels that take only part of a codebook into a decoder or encoder,
// which takes the whole codebook. To the kernel, ofValues passes the codebook's values, and ofTable
// the table.
func ofValues(k func(values *float32, codes *byte, out *float32, n int, scale *float32)) decoder {
	return func(b *codebook, codes *byte, out *float32, n int, scale *float32) {
		k(&b.values[0], codes, out, n, scale)
	}
}

func ofTable(k func(table *uint32, x *float32, codes *byte, n int, scale *float32)) encoder {
	return func(b *codebook, x *float32, codes *byte, n int, scale *float32) {
		k(&b.table[0], x, codes, n, scale)
	}
}
