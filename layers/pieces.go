package layers

import "mt/device"

// ActivationPiece is the largest number of bytes of activations in one copy. A GPU has a copy
// engine for each direction, which finishes a copy before it begins another. Because activations
// are copied in pieces, a tile of weights waits for at most one piece, not for a whole hidden
// state, which may have 256 MiB.
const ActivationPiece = 32 << 20

// CopyUp enqueues the copy of src on the host to dst on the device, in pieces of ActivationPiece
// bytes.
func CopyUp(s device.Stream, dst device.Mem, src []byte) {
	for from := int64(0); from < int64(len(src)); from += ActivationPiece {
		n := min(ActivationPiece, int64(len(src))-from)
		s.CopyH2D(dst.Slice(from, n), src[from:from+n])
	}
}

// CopyDown enqueues the copy of src on the device to dst on the host, in pieces of ActivationPiece
// bytes.
func CopyDown(s device.Stream, dst []byte, src device.Mem) {
	for from := int64(0); from < int64(len(dst)); from += ActivationPiece {
		n := min(ActivationPiece, int64(len(dst))-from)
		s.CopyD2H(dst[from:from+n], src.Slice(from, n))
	}
}
