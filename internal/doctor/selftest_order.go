package doctor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
)

// Sizes of the check of stream order. A copy of a buffer takes longer than the calls that enqueue
// the work behind the copy. Without events, that work would therefore start before the copy has
// ended.
const (
	orderElems  = 1 << 22 // fp32 elements per buffer in a self test
	orderRounds = 24
)

// order checks that events keep operations of different streams in order. It passes two buffers through three streams
// as the pipeline does: copy to the device, compute, copy back. Only events order these operations. elems is the
// number of fp32 elements per buffer.
func (r *SelfTestReport) order(dev device.Device, elems int) error {
	c := Check{Name: "order of streams", OK: true,
		Detail: fmt.Sprintf("%d rounds of %d MiB through two buffers on three streams", orderRounds, 4*elems>>20)}
	chk := orderCheck{dev: dev, check: &c, elems: elems}
	defer chk.close()
	if err := chk.run(); err != nil {
		return fmt.Errorf("order of streams: %w", err)
	}
	r.add(c)
	return nil
}

type orderCheck struct {
	dev     device.Device
	check   *Check
	elems   int
	closers []func()
}

func (o *orderCheck) close() {
	for i := len(o.closers) - 1; i >= 0; i-- {
		o.closers[i]()
	}
}

func (o *orderCheck) host() ([]byte, error) {
	b, err := o.dev.AllocHost(4 * int64(o.elems))
	if err == nil {
		o.closers = append(o.closers, func() { o.dev.FreeHost(b) })
	}
	return b, err
}

func (o *orderCheck) stream(name string) (device.Stream, error) {
	s, err := o.dev.NewStream(name)
	if err == nil {
		o.closers = append(o.closers, func() { _ = s.Close() })
	}
	return s, err
}

// buffer is one of the two buffers that orderCheck passes through its streams: device memory with
// events, and host memory for the copies.
type buffer struct {
	mem                   device.Mem
	arrived, worked, idle device.Event
	up, down              []byte
}

func (o *orderCheck) buffer() (l buffer, err error) {
	if l.mem, err = o.dev.Alloc(accounts.Workspace, 4*int64(o.elems)); err != nil {
		return l, err
	}
	o.closers = append(o.closers, func() { o.dev.Free(l.mem) })
	if l.up, err = o.host(); err != nil {
		return l, err
	}
	if l.down, err = o.host(); err != nil {
		return l, err
	}
	for _, e := range []*device.Event{&l.arrived, &l.worked, &l.idle} {
		made, err := o.dev.NewEvent()
		if err != nil {
			return l, err
		}
		o.closers = append(o.closers, made.Close)
		*e = made
	}
	return l, nil
}

// run fills buffers, computes on them and copies them back. The computation makes the first half of a buffer twice the
// second half, so the result reveals a copy that ran too early or too late.
func (o *orderCheck) run() error {
	up, err := o.stream("up")
	if err != nil {
		return err
	}
	work, err := o.stream("work")
	if err != nil {
		return err
	}
	down, err := o.stream("down")
	if err != nil {
		return err
	}
	var buffers [2]buffer
	for i := range buffers {
		if buffers[i], err = o.buffer(); err != nil {
			return err
		}
	}
	done := make(chan int, orderRounds)
	next := 0
	landed := func() { // the copy back is complete, so the upload memory may change
		if round := <-done; round != next {
			o.check.errorf("notification %d came where %d was due", round, next)
		}
		o.compare(buffers[next%2].down, next)
		next++
	}
	for round := range orderRounds {
		l := &buffers[round%2]
		if round >= 2 {
			landed()
		}
		fill(l.up, float32(round))
		up.Wait(l.idle)
		up.CopyH2D(l.mem, l.up)
		up.Record(l.arrived)
		work.Wait(l.arrived)
		n := int64(o.elems)
		t := l.mem.Tensor(device.F32, 0, n)
		work.CopyD2D(l.mem.Slice(0, 2*n), l.mem.Slice(2*n, 2*n))
		op.Do(o.dev, work, op.AddBiasGrad{DB: t.Slice(0, n/2), DY: t.Slice(n/2, n/2), T: 1, N: o.elems / 2})
		work.Record(l.worked)
		down.Wait(l.worked)
		down.CopyD2H(l.down, l.mem)
		down.Record(l.idle)
		down.Notify(func(error) { done <- round })
	}
	landed()
	landed()
	for _, s := range []device.Stream{up, work, down} {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// fill writes x to the first half of b and 2x+1 to the second half, as fp32.
func fill(b []byte, x float32) {
	half := len(b) / 2
	put(b[:half], x)
	put(b[half:], 2*x+1)
}

func put(b []byte, x float32) {
	if _, err := binary.Encode(b[:4], binary.NativeEndian, x); err != nil {
		panic(err) // four bytes hold a float, so this cannot fail
	}
	for n := 4; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// compare checks the content of b after the given round. The second half must be as written, and the first half must
// be twice the second.
func (o *orderCheck) compare(b []byte, round int) {
	second := 2*float32(round) + 1
	for i, want := range []float32{2 * second, second} {
		half := b[i*len(b)/2:][:len(b)/2]
		if first := math.Float32frombits(binary.NativeEndian.Uint32(half)); first == want && bytes.Equal(half[4:], half[:len(half)-4]) {
			continue
		}
		values := make([]float32, len(half)/4)
		if _, err := binary.Decode(half, binary.NativeEndian, values); err != nil {
			panic(err) // the sizes agree, so this cannot fail
		}
		for k, v := range values {
			if v != want {
				o.check.errorf("round %d: element %d of half %d is %v, want %v", round, k, i, v, want)
				return
			}
		}
	}
}
