package layers

import "mt/device"

// ActivationPiece is how many bytes of activations are copied at once. A GPU copies in one direction with one engine, which
// finishes a copy before it begins another. So a tile of weights waits for one piece at most, and not for a whole hidden
// state, which may take 256 MiB.
const ActivationPiece = 32 << 20

// CopyUp enqueues dst = src on s, in pieces of activations.
func CopyUp(s device.Stream, dst device.Mem, src []byte) {
	for from := int64(0); from < int64(len(src)); from += ActivationPiece {
		n := min(ActivationPiece, int64(len(src))-from)
		s.CopyH2D(dst.Slice(from, n), src[from:from+n])
	}
}

// CopyDown enqueues dst = src on s, in pieces of activations.
func CopyDown(s device.Stream, dst []byte, src device.Mem) {
	for from := int64(0); from < int64(len(dst)); from += ActivationPiece {
		n := min(ActivationPiece, int64(len(dst))-from)
		s.CopyD2H(dst[from:from+n], src.Slice(from, n))
	}
}
