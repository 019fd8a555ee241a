package extents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/huff0"
)

// blockBytes is the size of a block of data. Each block is compressed with Huffman codes of its
// own. The four byte planes of a block (plane k has byte k of each 4-byte word) have 32 KiB each,
// so they fit in a core's L2 cache.
const blockBytes = 128 << 10

const planes = 4

// An encoded block begins with four sizes, one for each byte plane: the number of the plane's encoded bytes. Size 1
// means that all bytes of the plane are equal. The full size of a plane means that the plane is copied. If the first
// size is whole, the block is copied without splitting it into planes.
const (
	headBytes = 4 * planes
	whole     = math.MaxUint32
)

// coder compresses numbers without loss, fast enough for a disk. It splits words of four bytes into four byte planes.
// Planes with little information, such as exponents or 8-bit codes, are Huffman-coded; the others are copied. The coder
// need not know the dtype: of fp32 numbers one plane in four compresses, of bf16 two, of 8-bit codes all.
//
// Decoding an encoded block gives the original bytes. Decoding other input gives an error or wrong bytes, but never a
// panic.
//
// A coder holds the memory for one block, so only one goroutine may use it at a time.
type coder struct {
	encoding, decoding huff0.Scratch
	apart              [planes][blockBytes / planes]byte
}

// encode compresses src into dst and returns the number of bytes written. ok is false if they do not fit in dst. So the
// length of dst decides how much compression must save.
func (c *coder) encode(dst, src []byte) (n int, ok bool) {
	for len(src) > 0 {
		block := src[:min(blockBytes, len(src))]
		src = src[len(block):]
		took, ok := c.encodeBlock(dst[n:], block)
		if !ok {
			return 0, false
		}
		n += took
	}
	return n, true
}

func (c *coder) encodeBlock(dst, block []byte) (n int, ok bool) {
	if len(dst) < headBytes {
		return 0, false
	}
	var low [planes]bool
	any := false
	for k := range low {
		low[k] = len(block)%planes == 0 && saysLittle(block[k:])
		any = any || low[k]
	}
	n = headBytes
	if !any {
		binary.LittleEndian.PutUint32(dst, whole)
		return n + copy(dst[n:], block), len(dst)-n >= len(block)
	}
	size := len(block) / planes
	split(&c.apart, block)
	for k := range low {
		out := c.apart[k][:size]
		if low[k] {
			out = c.code(out)
		}
		if len(dst)-n < len(out) {
			return 0, false
		}
		binary.LittleEndian.PutUint32(dst[4*k:], uint32(len(out)))
		n += copy(dst[n:], out)
	}
	return n, true
}

// code returns the encoded form of a byte plane. If all bytes are equal, that is a single byte. Otherwise it is the
// Huffman code or the plane itself, whichever is shorter.
func (c *coder) code(plane []byte) []byte {
	c.encoding.Reuse = huff0.ReusePolicyNone
	out, _, err := huff0.Compress4X(plane, &c.encoding)
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		return plane[:1]
	case err != nil || len(out) >= len(plane):
		return plane
	}
	return out
}

// saysLittle reports whether Huffman coding is worth its time for a byte plane: every fourth byte
// of b, from the first on. It is if the plane's entropy is below 7 bits a byte, estimated from a
// sample. A sample of n bytes underestimates the entropy by at most 255/(2n ln 2) bits (Miller
// 1955), here a tenth of a bit.
func saysLittle(b []byte) bool {
	const run, samples = 64, 2048
	var count [256]uint16
	n := 0
	step := max(run*planes, len(b)*run/samples/planes*planes)
	for at := 0; at < len(b); at += step {
		for i := at; i < min(at+run*planes, len(b)); i += planes {
			count[b[i]]++
			n++
		}
	}
	var bits float64
	for _, c := range count {
		if c > 0 {
			bits += float64(c) * (math.Log2(float64(n)) - logs[min(int(c), len(logs)-1)])
		}
	}
	return bits < 7*float64(n)
}

// logs[n] is log2(n), for the number of times that a byte value occurs in the sample.
var logs = func() (l [4096]float64) {
	for i := range l {
		l[i] = math.Log2(float64(i))
	}
	return l
}()

// split writes byte k of each 4-byte word of b to plane k.
func split(to *[planes][blockBytes / planes]byte, b []byte) {
	n := len(b) / planes
	p0, p1, p2, p3 := to[0][:n], to[1][:n], to[2][:n], to[3][:n]
	b = b[:planes*n]
	for i := 0; i+8 <= n; i += 8 {
		x := b[planes*i : planes*i+32 : planes*i+32]
		x0, x1, x2, x3 := binary.LittleEndian.Uint64(x), binary.LittleEndian.Uint64(x[8:]), binary.LittleEndian.Uint64(x[16:]), binary.LittleEndian.Uint64(x[24:])
		binary.LittleEndian.PutUint64(p0[i:i+8], pair(x0)|pair(x1)<<16|pair(x2)<<32|pair(x3)<<48)
		binary.LittleEndian.PutUint64(p1[i:i+8], pair(x0>>8)|pair(x1>>8)<<16|pair(x2>>8)<<32|pair(x3>>8)<<48)
		binary.LittleEndian.PutUint64(p2[i:i+8], pair(x0>>16)|pair(x1>>16)<<16|pair(x2>>16)<<32|pair(x3>>16)<<48)
		binary.LittleEndian.PutUint64(p3[i:i+8], pair(x0>>24)|pair(x1>>24)<<16|pair(x2>>24)<<32|pair(x3>>24)<<48)
	}
	for i := n &^ 7; i < n; i++ {
		p0[i], p1[i], p2[i], p3[i] = b[planes*i], b[planes*i+1], b[planes*i+2], b[planes*i+3]
	}
}

// pair returns 16 bits with bytes 0 and 4 of x, which hold the same byte of two neighbouring words.
func pair(x uint64) uint64 { return x&0xFF | x>>24&0xFF00 }

// merge is the inverse of split: it writes the words to b.
func merge(b []byte, from *[planes][]byte) {
	n := len(b) / planes
	p0, p1, p2, p3 := from[0][:n], from[1][:n], from[2][:n], from[3][:n]
	for i := range n {
		binary.LittleEndian.PutUint32(b[planes*i:planes*i+planes], uint32(p0[i])|uint32(p1[i])<<8|uint32(p2[i])<<16|uint32(p3[i])<<24)
	}
}

var errBroken = errors.New("extents: these bytes are not what was encoded")

// decode decompresses src into dst, which must have the length of the original. src may have more bytes after its
// encoded blocks.
func (c *coder) decode(dst, src []byte) error {
	for len(dst) > 0 {
		block := dst[:min(blockBytes, len(dst))]
		dst = dst[len(block):]
		n, err := c.decodeBlock(block, src)
		if err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}

func (c *coder) decodeBlock(block, src []byte) (n int, err error) {
	if len(src) < headBytes {
		return 0, errBroken
	}
	n = headBytes
	if binary.LittleEndian.Uint32(src) == whole {
		if len(src)-n < len(block) {
			return 0, errBroken
		}
		return n + copy(block, src[n:]), nil
	}
	size := len(block) / planes
	var from [planes][]byte
	for k := range from {
		bytes := int64(binary.LittleEndian.Uint32(src[4*k:]))
		if int64(len(src)-n) < bytes {
			return 0, errBroken
		}
		in := src[n : n+int(bytes)]
		n += len(in)
		switch from[k] = c.apart[k][:size]; len(in) {
		case size:
			from[k] = in
		case 1:
			for i := range from[k] {
				from[k][i] = in[0]
			}
		default:
			s, rest, err := huff0.ReadTable(in, &c.decoding)
			if err == nil {
				_, err = s.Decoder().Decompress4X(from[k][:0:size], rest)
			}
			if err != nil {
				return 0, fmt.Errorf("byteplane: %w", err)
			}
		}
	}
	merge(block, &from)
	return n, nil
}
