package vec

import "testing"

// BenchmarkStrips times the two strip functions of attention on data in the first-level cache; a
// strip has 13·128 scores.
func BenchmarkStrips(b *testing.B) {
	const rows, stride = 13, 272
	x, dx, a, c := make([]float32, (rows+1)*stride), make([]float32, (rows+1)*stride), make([]float32, rows), make([]float32, rows)
	s := Strip{Stride: stride, Rows: rows, N: 122, Most: 134, Width: 134, Scale: 0.1}
	b.Run("softmax", func(b *testing.B) {
		for b.Loop() {
			SoftmaxStrip(x, s, a, c)
		}
	})
	b.Run("gradient", func(b *testing.B) {
		for b.Loop() {
			GradStrip(x, dx, s, a, c)
		}
	})
	q, k := make([]float32, rows*32), make([]float32, 5*32*Panel)
	b.Run("scores", func(b *testing.B) {
		for b.Loop() {
			Tile(rows, 32, q, 32, false, k, 32*Panel, x, stride, 4, false)
		}
	})
	b.Run("values", func(b *testing.B) {
		for b.Loop() {
			Tile(rows, 128, x, stride, false, k, 0, dx, stride, 1, true)
		}
	})
	b.Run("keys", func(b *testing.B) {
		for b.Loop() {
			Tile(14, 13, x, stride, true, k, 0, dx, stride, 1, true)
		}
	})
}
