package checkpoint

import (
	"fmt"
	"testing"
)

func BenchmarkPlanes(b *testing.B) {
	c := config(b, map[string]any{"vocab_size": 4096, "hidden_size": 256, "num_hidden_layers": 1})
	buf := make([]byte, pieceBytes)
	for _, bf16 := range []bool{false, true} {
		l := newLayers(c, bf16)[0]
		t := l.Layout.Tensors[0]
		for _, p := range []plane{planeF32, planeBF16, planeLo} {
			raw := make([]byte, t.Elems()*p.size())
			b.Run(fmt.Sprintf("encode/split=%v/%s", bf16, p.prefix+p.dtype), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				for range b.N {
					l.encode(t, p, 0, t.Elems(), buf)
				}
			})
			b.Run(fmt.Sprintf("decode/split=%v/%s", bf16, p.prefix+p.dtype), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				for range b.N {
					l.decode(t, p, 0, raw)
				}
			})
		}
	}
}
