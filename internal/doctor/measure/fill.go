package measure

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"mt/base/bf16"
	"mt/device"
)

// mostFilled is the size in bytes of the random numbers that the host computes. Larger memory gets repetitions of
// them.
const mostFilled = 1 << 20

// FillRandom fills mem with random numbers in [-1, 1) of type dt. The pattern repeats after 1 MiB. Zeros would not do:
// a GPU computes faster on them, because it draws less power.
func FillRandom(dev device.Device, s device.Stream, mem device.Mem, dt device.DType) error {
	r := rand.New(rand.NewPCG(3, 5))
	return repeat(dev, s, mem, dt, min(mem.Bytes, mostFilled), func(int) float64 { return float64(2*r.Float32() - 1) })
}

// fillWith sets element i of t to value(i).
func fillWith(dev device.Device, s device.Stream, t device.Tensor, value func(i int) float64) error {
	return repeat(dev, s, t.Mem(), t.DType, t.Mem().Bytes, value)
}

// repeat fills mem, whose elements have type dt. The host computes the first bytes of mem, whose
// size is first: element i is value(i). The rest of mem gets repetitions of these bytes.
func repeat(dev device.Device, s device.Stream, mem device.Mem, dt device.DType, first int64, value func(i int) float64) error {
	run, err := dev.AllocHost(first)
	if err != nil {
		return err
	}
	defer dev.FreeHost(run)
	size := int(dt.Size())
	for i := range len(run) / size {
		v := value(i)
		switch b := run[i*size:]; dt {
		case device.BF16:
			binary.NativeEndian.PutUint16(b, bf16.Round(float32(v)))
		case device.I32:
			binary.NativeEndian.PutUint32(b, uint32(int32(v)))
		default:
			binary.NativeEndian.PutUint32(b, math.Float32bits(float32(v)))
		}
	}
	done := int64(len(run))
	s.CopyH2D(mem.Slice(0, done), run)
	for done < mem.Bytes {
		n := min(done, mem.Bytes-done)
		s.CopyD2D(mem.Slice(done, n), mem.Slice(0, n))
		done += n
	}
	return s.Sync()
}
