package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"mt/internal/byteplane"
)

// transform turns elements into bytes that compress better, and back. prev is the same
// elements a step before. Both write dst, which is as long as src.
type transform struct {
	name       string
	prev       bool // needs the step before
	there, not func(dst, src, prev []byte, size int)
}

// transforms are tried on every kind. xor and difference put their result in byte planes
// too: where two steps are alike, their upper planes are zeros.
var transforms = []transform{
	{"as it is", false, keep, keep},
	{"byte planes", false, planes, unplanes},
	{"xor, planes", true, xorPlanes, unxorPlanes},
	{"difference, planes", true, minusPlanes, plusPlanes},
}

func keep(dst, src, _ []byte, _ int) { copy(dst, src) }

// planes puts first bytes first, then second bytes, and so on (a shuffle, in the words of
// Blosc and HDF5).
func planes(dst, src, _ []byte, size int) {
	n := len(src) / size
	for b := range size {
		plane := dst[b*n : (b+1)*n]
		for i := range plane {
			plane[i] = src[i*size+b]
		}
	}
}

func unplanes(dst, src, _ []byte, size int) {
	n := len(src) / size
	for b := range size {
		for i, x := range src[b*n : (b+1)*n] {
			dst[i*size+b] = x
		}
	}
}

func xorPlanes(dst, src, prev []byte, size int) {
	n := len(src) / size
	for b := range size {
		plane := dst[b*n : (b+1)*n]
		for i := range plane {
			plane[i] = src[i*size+b] ^ prev[i*size+b]
		}
	}
}

func unxorPlanes(dst, src, prev []byte, size int) {
	unplanes(dst, src, nil, size)
	for i := range dst {
		dst[i] ^= prev[i]
	}
}

// minusPlanes takes the patterns of bits as integers and subtracts the step before, with
// the sign in the lowest bit, so that small differences of both signs have zeros above.
func minusPlanes(dst, src, prev []byte, size int) {
	n := len(src) / size
	for i := range n {
		var d uint32
		if size == 2 {
			x := binary.LittleEndian.Uint16(src[2*i:]) - binary.LittleEndian.Uint16(prev[2*i:])
			d = uint32(x<<1 ^ uint16(int16(x)>>15))
		} else {
			x := binary.LittleEndian.Uint32(src[4*i:]) - binary.LittleEndian.Uint32(prev[4*i:])
			d = x<<1 ^ uint32(int32(x)>>31)
		}
		for b := range size {
			dst[b*n+i] = byte(d >> (8 * b))
		}
	}
}

func plusPlanes(dst, src, prev []byte, size int) {
	n := len(src) / size
	for i := range n {
		var d uint32
		for b := range size {
			d |= uint32(src[b*n+i]) << (8 * b)
		}
		d = d>>1 ^ -(d & 1)
		if size == 2 {
			binary.LittleEndian.PutUint16(dst[2*i:], binary.LittleEndian.Uint16(prev[2*i:])+uint16(d))
		} else {
			binary.LittleEndian.PutUint32(dst[4*i:], binary.LittleEndian.Uint32(prev[4*i:])+d)
		}
	}
}

// codec compresses a block, on one core.
type codec struct {
	name       string
	compress   func(dst, src []byte) []byte
	decompress func(dst, src []byte) ([]byte, error)
}

// newCodecs makes what `compress: byteplane` does on disks, which needs no preparation, zstd at three levels (what they are like in the reference
// implementation stands in the names) and S2, a faster Snappy.
func newCodecs() ([]codec, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	unzstd := func(dst, src []byte) ([]byte, error) { return decoder.DecodeAll(src, dst[:0]) }
	all := []codec{{"s2", func(dst, src []byte) []byte { return s2.Encode(dst[:cap(dst)], src) }, s2.Decode}}
	for _, l := range []struct {
		name  string
		level zstd.EncoderLevel
	}{{"zstd 1", zstd.SpeedFastest}, {"zstd 3", zstd.SpeedDefault}, {"zstd 7", zstd.SpeedBetterCompression}} {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(l.level), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, err
		}
		all = append(all, codec{l.name, func(dst, src []byte) []byte { return encoder.EncodeAll(src, dst[:0]) }, unzstd})
	}
	var coder byteplane.Coder
	return append(all, codec{"byteplane", func(dst, src []byte) []byte {
		n, _ := coder.Encode(dst[:cap(dst)], src)
		return dst[:n]
	}, func(dst, src []byte) ([]byte, error) { return dst, coder.Decode(dst, src) }}), nil
}

// squeezed is how one way did on one kind of bytes.
type squeezed struct {
	in, out    int64
	there, not time.Duration
}

// errChanged says that what came back is not what went in.
var errChanged = errors.New("what came back is not what was compressed")

// tries is how often a block goes there and back. The fastest time of each way counts, as
// a block takes so little that a neighbour on the machine either disturbs all of it or
// nothing.
const tries = 4

// squeeze compresses and decompresses data in blocks and adds up sizes and times. What
// comes back must be the same.
func (s *squeezed) squeeze(t transform, c codec, data, prev []byte, size, block int) error {
	block = block / size * size
	mid, raw, back := make([]byte, block), make([]byte, block), make([]byte, block)
	packed := make([]byte, 0, s2.MaxEncodedLen(block)+block)
	for at := 0; at < len(data); at += block {
		n := min(block, len(data)-at)
		src, before := data[at:at+n], []byte(nil)
		if t.prev {
			before = prev[at : at+n]
		}
		var there, not time.Duration
		var out []byte
		for try := range tries {
			start := time.Now()
			t.there(mid[:n], src, before, size)
			out = c.compress(packed, mid[:n])
			middle := time.Now()
			plain, err := c.decompress(raw[:n], out)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			t.not(back[:n], plain, before, size)
			end := time.Now()
			if !bytes.Equal(back[:n], src) {
				return fmt.Errorf("%s, %s: %w", t.name, c.name, errChanged)
			}
			if there, not = min(there, middle.Sub(start)), min(not, end.Sub(middle)); try == 0 {
				there, not = middle.Sub(start), end.Sub(middle)
			}
		}
		s.in, s.out, s.there, s.not = s.in+int64(n), s.out+int64(len(out)), s.there+there, s.not+not
	}
	return nil
}

// entropyRatio is by how much one code for each byte of an element could shrink them: their
// bits over the sum of the entropies of the byte planes. Codes that adapt to every block,
// and see more than one byte at a time, may do better.
func entropyRatio(data []byte, size int) float64 {
	var bits float64
	for b := range size {
		var count [256]float64
		for i := b; i < len(data); i += size {
			count[data[i]]++
		}
		n := float64(len(data) / size)
		for _, c := range count {
			if c > 0 {
				bits -= c / n * math.Log2(c/n)
			}
		}
	}
	return 8 * float64(size) / max(bits, 1e-9)
}
