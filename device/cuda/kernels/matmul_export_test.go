package kernels

import (
	"testing"

	"mt/device"
	"mt/device/op"
)

var matMulNames = map[string]*matMulTile{
	"bf16 large": bf16Large, "bf16 medium": bf16Medium, "bf16 small": bf16Small, "bf16 any": bf16Any, "bf16 rows": bf16Rows,
	"fp32 large": f32Large, "fp32 small": f32Small,
}

// MatMulBy computes m with the named tile, and with K split into about parts parts.
func MatMulBy(l Launcher, m op.MatMul, tile string, parts int) {
	matMulWith(l, m, matMulNames[tile], parts)
}

// MatMulChoice returns the tile and the number of parts that MatMul would choose for m.
func MatMulChoice(m op.MatMul) (tile string, parts int) {
	t, parts := cheapest(matMulTiles(m), m)
	for name, is := range matMulNames {
		if is == t {
			tile = name
		}
	}
	return tile, parts
}

// TestPartsAreAligned: if K is split, each part begins at a multiple of 16 bytes, so rows can still
// be read 16 bytes at a time.
func TestPartsAreAligned(t *testing.T) {
	for name, tile := range matMulNames {
		size := device.BF16.Size()
		if name[:4] == "fp32" {
			size = device.F32.Size()
		}
		if tile.k*size%16 != 0 {
			t.Errorf("%s: parts begin at multiples of %d elements, which are %d bytes", name, tile.k, tile.k*size)
		}
	}
}
