package layers

import (
	"testing"

	"mt/device"
)

// copies is a stream that records the copies enqueued on it and does none.
type copies struct {
	device.Stream
	up, down []device.Mem
	host     [][]byte
}

func (c *copies) CopyH2D(dst device.Mem, src []byte) {
	c.up, c.host = append(c.up, dst), append(c.host, src)
}
func (c *copies) CopyD2H(dst []byte, src device.Mem) {
	c.down, c.host = append(c.down, src), append(c.host, dst)
}

// TestActivationPieces: a copy of activations is cut into consecutive pieces, none larger than ActivationPiece.
func TestActivationPieces(t *testing.T) {
	for _, n := range []int64{0, 1, ActivationPiece - 1, ActivationPiece, ActivationPiece + 1, 3*ActivationPiece - 256, 8 * ActivationPiece} {
		host, mem := make([]byte, n), device.Mem{Addr: 1 << 40, Bytes: n}
		var c copies
		CopyUp(&c, mem, host)
		CopyDown(&c, host, mem)
		pieces := int((n + ActivationPiece - 1) / ActivationPiece)
		if len(c.up) != pieces || len(c.down) != pieces {
			t.Errorf("%d bytes: %d and %d pieces, want %d", n, len(c.up), len(c.down), pieces)
			continue
		}
		for i, m := range append(c.up, c.down...) {
			at := int64(i%pieces) * ActivationPiece
			want := mem.Slice(at, min(ActivationPiece, n-at))
			if m != want || int64(len(c.host[i])) != want.Bytes || &c.host[i][0] != &host[at] {
				t.Errorf("%d bytes: copy %d is of %+v and %d bytes of the host, want %+v", n, i, m, len(c.host[i]), want)
			}
		}
	}
}
