//go:build !amd64 || noasm

package ptx

func addF32(d, a, b *lanes32)    { addF32Go(d, a, b) }
func subF32(d, a, b *lanes32)    { subF32Go(d, a, b) }
func mulF32(d, a, b *lanes32)    { mulF32Go(d, a, b) }
func fmaF32(d, a, b, c *lanes32) { fmaF32Go(d, a, b, c) }

func product(sums *[64]uint64, a *[128]uint64, b *[16][8]float32, depth int) {
	productGo(sums, a, b, depth)
}
