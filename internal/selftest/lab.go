package selftest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"mt/device"
	"mt/internal/accounts"
	"mt/internal/base/bf16"
)

// lab computes on one device with what is on the host. It keeps the first error, and does nothing after it.
type lab struct {
	m    *meter
	held []device.Mem
	err  error
}

func newLab(dev device.Device) (*lab, error) {
	m, err := newMeter(dev)
	return &lab{m: m}, err
}

func (l *lab) close() {
	l.free()
	l.m.close()
}

// free gives the device's memory back.
func (l *lab) free() {
	_ = l.m.s.Sync() // whoever reads results sees its error
	for _, m := range l.held {
		l.m.dev.Free(m)
	}
	l.held = nil
}

// tensor is device memory for n elements.
func (l *lab) tensor(dt device.DType, n int) device.Tensor {
	if l.err != nil {
		return device.Tensor{DType: dt}
	}
	bytes := int64(n) * dt.Size()
	mem, err := l.m.dev.Alloc(accounts.Workspace, bytes)
	if l.err = err; err != nil {
		return device.Tensor{DType: dt}
	}
	l.held = append(l.held, mem)
	return mem.Tensor(dt, 0, int64(n))
}

// of is a tensor on the device that holds values.
func (l *lab) of(dt device.DType, values []float32) device.Tensor {
	t := l.tensor(dt, len(values))
	l.write(t, values)
	return t
}

// indices is a tensor of int32.
func (l *lab) indices(values []int32) device.Tensor {
	t := l.tensor(device.I32, len(values))
	l.host(t, func(b []byte) {
		for i, v := range values {
			binary.NativeEndian.PutUint32(b[4*i:], uint32(v))
		}
		l.m.s.CopyH2D(t.Mem(), b)
	})
	return t
}

// write copies values to t, in t's type.
func (l *lab) write(t device.Tensor, values []float32) {
	l.host(t, func(b []byte) {
		for i, v := range values {
			if t.DType == device.BF16 {
				binary.NativeEndian.PutUint16(b[2*i:], bf16.Round(v))
			} else {
				binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(v))
			}
		}
		l.m.s.CopyH2D(t.Mem(), b)
	})
}

// read copies t to the host.
func (l *lab) read(t device.Tensor) (values []float32) {
	values = make([]float32, t.Len)
	l.host(t, func(b []byte) {
		l.m.s.CopyD2H(b, t.Mem())
		if l.m.s.Sync() != nil {
			return // host has the error
		}
		for i := range values {
			if t.DType == device.BF16 {
				values[i] = bf16.Widen(binary.NativeEndian.Uint16(b[2*i:]))
			} else {
				values[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
			}
		}
	})
	return values
}

// host calls f with host memory for t, and waits for the copy that f enqueues.
func (l *lab) host(t device.Tensor, f func(b []byte)) {
	if l.err != nil {
		return
	}
	b, err := l.m.dev.AllocHost(t.Mem().Bytes)
	if l.err = err; err != nil {
		return
	}
	f(b)
	l.err = l.m.s.Sync()
	l.m.dev.FreeHost(b)
}

// timed runs f twice and returns the device time of the second run.
func (l *lab) timed(f func()) (took time.Duration) {
	took = 1
	for range 2 {
		if l.err == nil {
			took, l.err = l.m.time(f)
		}
	}
	return max(took, 1)
}

// uniform are n numbers in [-most, most) that bf16 holds.
func uniform(rng *rand.Rand, n int, most float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = bf16.Widen(bf16.Round(most * (2*rng.Float32() - 1)))
	}
	return out
}

// elementsDiffer is the largest difference between two tensors, and where it is. What is no number is
// infinitely far off.
func elementsDiffer(got, want []float32) (at int, off float64) {
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if d > off {
			at, off = i, d
		}
	}
	return at, off
}

// rowsDiffer is the largest difference between two rows of n elements, and which row that is: the norm of the
// difference over that of the row and the mean one.
func rowsDiffer(got, want []float32, n int) (at int, off float64) {
	norm := func(x func(i int) float64) float64 {
		sum := 0.0
		for i := range n {
			sum += x(i) * x(i)
		}
		return math.Sqrt(sum)
	}
	rows, mean := len(want)/n, 0.0
	for r := range rows {
		mean += norm(func(i int) float64 { return float64(want[r*n+i]) }) / float64(rows)
	}
	for r := range rows {
		own := norm(func(i int) float64 { return float64(want[r*n+i]) })
		d := norm(func(i int) float64 { return float64(got[r*n+i]) - float64(want[r*n+i]) }) / (own + mean)
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if d > off {
			at, off = r, d
		}
	}
	return at, off
}

// took is a time for people.
func took(d time.Duration) string { return d.Round(d/1000 + 1).String() }
