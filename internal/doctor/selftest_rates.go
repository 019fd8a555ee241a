package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"mt/base/accounts"
	"mt/device"
	"mt/internal/doctor/measure"
	"mt/internal/run/machine"
	"mt/plan/rates"
)

// enough is the least time of one measurement of a rate. Sizes grow until a measurement takes this long. Tests ignore
// rates and lower it.
var enough = 20 * time.Millisecond

// copySizes are the sizes in bytes with which copies are measured. Larger sizes are tried until one
// copy takes as long as enough.
var copySizes = []int{1 << 22, 1 << 25, 1 << 28}

// rate appends a measured rate to the report and returns a pointer to it, so that the caller can add a prediction.
func (r *SelfTestReport) rate(name string, value float64, unit, detail string, args ...any) *Rate {
	r.Rates = append(r.Rates, Rate{name, value, unit, fmt.Sprintf(detail, args...), rates.Against(0, value)})
	return &r.Rates[len(r.Rates)-1]
}

// withMeter calls f with a meter on dev. The meter times each size only once, because f tries larger sizes until one
// takes long enough.
func withMeter(dev device.Device, f func(m *measure.Meter) error) error {
	m, err := measure.New(dev, measure.Options{Least: 1})
	if err != nil {
		return err
	}
	return errors.Join(f(m), m.Close())
}

// matMuls measures the rate of square products A·Bᵀ of each dtype. A training run divides its FLOP
// rate by a rate measured in the same way to report MFU (model FLOPs utilization).
func (r *SelfTestReport) matMuls(dev device.Device) error {
	for _, act := range dtypes {
		r.starts("rate of matrix products " + act.String())
		for n := 256; n <= 8192; n *= 2 {
			rate, err := machine.MatMulRate(dev, act, n)
			if err != nil {
				return fmt.Errorf("matrix product %s: %w", act, err)
			}
			if p := (measure.Product{M: n, N: n, K: n}); n == 8192 || p.FLOPs()/rate >= enough.Seconds() {
				said := r.rate("matrix product "+act.String(), rate/1e12, "TFLOP/s", "%d×%d×%d", n, n, n)
				said.predict(p.FLOPs()/1e12, r.machine.ProductSeconds(rates.Product{M: n, N: n, K: n, TransB: true}, act, false))
				break
			}
		}
	}
	return nil
}

// attention measures one causal sequence with the heads of a 7B model, forward and backward.
func (r *SelfTestReport) attention(m *measure.Meter, act device.DType) error {
	for _, way := range []string{"forward", "backward"} {
		name := "attention " + way + " " + act.String()
		r.starts("rate of " + name)
		for n := 128; n <= 8192; n *= 2 {
			a := measure.Attention{Tokens: n, Length: n, Heads: 28, KVHeads: 4, Dim: 128, DType: act, Backward: way == "backward"}
			took, err := m.Attention(a)
			if err != nil {
				return err
			}
			if n == 8192 || took.Median >= enough.Seconds() {
				said := r.rate(name, a.FLOPs()/took.Median/1e12, "TFLOP/s", "%d tokens, %d heads of %d, causal, counted half", n, a.Heads, a.Dim)
				said.predict(a.FLOPs()/1e12, r.machine.AttentionSeconds(n, n, a.Heads, a.KVHeads, a.Dim, act, a.Backward))
				break
			}
		}
	}
	return nil
}

// copies measures pinned copies in each direction and in both at once, and checks the bytes that arrive.
func (r *SelfTestReport) copies(dev device.Device) error {
	err := withMeter(dev, func(m *measure.Meter) error {
		for i, size := range copySizes {
			r.starts(fmt.Sprintf("copies of %d MiB", size>>20))
			up, err := m.H2D(int64(size), measure.Pinned)
			if err != nil {
				return err
			}
			if i+1 == len(copySizes) || up.Median >= enough.Seconds()/4 {
				return r.copiesOf(m, size, up)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copies: %w", err)
	}
	return nil
}

// copiesOf measures and reports copies of one size in bytes. `up` is the already measured time of copies to the device.
func (r *SelfTestReport) copiesOf(m *measure.Meter, size int, up measure.Seconds) error {
	bytes, mib := int64(size), size>>20
	starts := func(what string) { r.starts(fmt.Sprintf("copies of %d MiB, %s", mib, what)) }
	toDevice, toHost, inside := r.copySeconds(float64(size))
	rate := func(name string, took measure.Seconds, predicted float64) {
		r.rate(name, float64(size)/took.Median/1e9, "GB/s", "%d MiB pinned", mib).predict(float64(size)/1e9, predicted)
	}
	rate("host to device", up, toDevice)
	starts("device to host")
	down, err := m.D2H(bytes, measure.Pinned)
	if err != nil {
		return err
	}
	rate("device to host", down, toHost)
	starts("up, across and down again")
	c, err := roundTrip(m.Device(), size)
	if err != nil {
		return err
	}
	starts("inside the device")
	across, err := m.D2D(bytes)
	if err != nil {
		return err
	}
	r.rate("device memory", 2*float64(size)/across.Median/1e9, "GB/s", "a copy, read and write counted").predict(2*float64(size)/1e9, inside)
	starts("both ways")
	ups, downs, err := m.Both(bytes, measure.Pinned)
	if err != nil {
		return err
	}
	for _, way := range []struct {
		name string
		took measure.Seconds
	}{{"host to device, both ways", ups}, {"device to host, both ways", downs}} {
		said := r.rate(way.name, float64(size)/way.took.Median/1e9, "GB/s", "while the other direction runs")
		if r.machine != nil {
			said.predict(r.machine.Link.Both/2, 1)
		}
	}
	r.add(c)
	return nil
}

// copySeconds returns the predicted times of a copy of bytes to the device, to the host, and inside the device; 0: no
// prediction.
func (r *SelfTestReport) copySeconds(bytes float64) (up, down, inside float64) {
	if r.machine == nil {
		return 0, 0, 0
	}
	l := r.machine.Link
	fixed := l.Latency / 1e6
	return fixed + bytes/(l.Up*1e9), fixed + bytes/(l.Down*1e9), rates.NewCosts(r.machine).Moved("", int64(2*bytes)).Seconds
}

// roundTrip copies pinned memory to the device, within the device and back, and checks the bytes.
func roundTrip(dev device.Device, size int) (c Check, err error) {
	c = Check{Name: "pinned copies", OK: true, Detail: fmt.Sprintf("%d MiB up, across and down again", size>>20)}
	p, err := newPair(dev, "round trip", size)
	if err != nil {
		return c, err
	}
	p.s.CopyH2D(p.up, p.from)
	p.s.CopyD2D(p.down, p.up)
	p.s.CopyD2H(p.to, p.down)
	if err = p.s.Sync(); err == nil && !bytes.Equal(p.from, p.to) {
		c.errorf("what came back is not what was sent")
	}
	return c, errors.Join(err, p.free())
}

// pair has the memory of copies to the device, across and back: pinned host memory and device
// memory for both directions, and a stream.
type pair struct {
	dev      device.Device
	s        device.Stream
	up, down device.Mem
	from, to []byte
}

func newPair(dev device.Device, stream string, size int) (_ *pair, err error) {
	p := &pair{dev: dev}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.free())
		}
	}()
	if p.s, err = dev.NewStream(stream); err != nil {
		return nil, err
	}
	for _, b := range []*[]byte{&p.from, &p.to} {
		if *b, err = dev.AllocHost(int64(size)); err != nil {
			return nil, err
		}
	}
	for _, mem := range []*device.Mem{&p.up, &p.down} {
		if *mem, err = dev.Alloc(accounts.Workspace, int64(size)); err != nil {
			return nil, err
		}
	}
	for i := range p.from {
		p.from[i] = byte(i*7 + i>>8)
	}
	return p, nil
}

// free closes the stream and frees the memory.
func (p *pair) free() (err error) {
	if p.s != nil {
		err = p.s.Close()
	}
	for _, b := range [][]byte{p.from, p.to} {
		if b != nil {
			p.dev.FreeHost(b)
		}
	}
	p.dev.Free(p.up)
	p.dev.Free(p.down)
	return err
}
