package selftest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"mt/device"
	"mt/internal/accounts"
	"mt/plan/rates"
)

// copySizes are sizes in bytes, tried in order until one copy takes long enough.
var copySizes = []int{1 << 22, 1 << 25, 1 << 28}

// copies measures copies of pinned memory in each direction and in both at once,
// and checks the bytes that arrived.
func (r *Report) copies(dev device.Device) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copies: %w", err)
		}
	}()
	m, err := newMeter(dev)
	if err != nil {
		return err
	}
	defer m.close()
	other, err := newMeter(dev)
	if err != nil {
		return err
	}
	defer other.close()
	c := Check{Name: "pinned copies", OK: true}
	for i, size := range copySizes {
		r.starts(fmt.Sprintf("copies of %d MiB", size>>20))
		p, err := newPair(dev, size)
		if err != nil {
			return err
		}
		took, err := m.time(func() { m.s.CopyH2D(p.up, p.from) })
		if err == nil && (took >= enough/4 || i+1 == len(copySizes)) {
			err = r.measureCopies(m, other, p, &c)
			p.free()
			if err == nil {
				r.add(c)
			}
			return err
		}
		p.free()
		if err != nil {
			return err
		}
	}
	return nil
}

// pair is pinned memory and device memory for both directions.
type pair struct {
	dev      device.Device
	up, down device.Mem
	from, to []byte
}

func newPair(dev device.Device, size int) (_ *pair, err error) {
	p := &pair{dev: dev}
	defer func() {
		if err != nil {
			p.free()
		}
	}()
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

func (p *pair) free() {
	for _, b := range [][]byte{p.from, p.to} {
		if b != nil {
			p.dev.FreeHost(b)
		}
	}
	p.dev.Free(p.up)
	p.dev.Free(p.down)
}

func (r *Report) measureCopies(m, other *meter, p *pair, c *Check) error {
	size, steps := float64(len(p.from)), fmt.Sprintf("copies of %d MiB, ", len(p.from)>>20)
	toDevice, toHost, inside := r.copySeconds(size)
	r.starts(steps + "host to device")
	rate := func(name string, took time.Duration, predicted float64) {
		r.rate(name, size/took.Seconds()/1e9, "GB/s", "%d MiB pinned", len(p.from)>>20).predict(size/1e9, predicted)
	}
	up, err := m.median(func() { m.s.CopyH2D(p.up, p.from) })
	if err != nil {
		return err
	}
	rate("host to device", up, toDevice)
	r.starts(steps + "device to host")
	m.s.CopyD2D(p.down, p.up)
	down, err := m.median(func() { m.s.CopyD2H(p.to, p.down) })
	if err != nil {
		return err
	}
	rate("device to host", down, toHost)
	c.Detail = fmt.Sprintf("%d MiB up, across and down again", len(p.from)>>20)
	if !bytes.Equal(p.from, p.to) {
		c.errorf("what came back is not what was sent")
	}
	r.starts(steps + "inside the device")
	across, err := m.median(func() { m.s.CopyD2D(p.down, p.up) })
	if err != nil {
		return err
	}
	r.rate("device memory", 2*size/across.Seconds()/1e9, "GB/s", "a copy, read and write counted").predict(2*size/1e9, inside)
	r.starts(steps + "both ways")
	return r.bothWays(m, other, p)
}

// copySeconds are what the machine's rates say of a copy of so many bytes to the device, to the host, and inside the device.
func (r *Report) copySeconds(bytes float64) (up, down, inside float64) {
	if r.machine == nil {
		return 0, 0, 0
	}
	l := r.machine.Link
	fixed := l.Latency / 1e6
	return fixed + bytes/(l.Up*1e9), fixed + bytes/(l.Down*1e9), rates.NewCosts(r.machine).Moved("", int64(2*bytes)).Seconds
}

// bothWays runs three copies in each direction at once. It times those in the
// middle of the other direction's, so that neither direction is ever alone.
func (r *Report) bothWays(m, other *meter, p *pair) error {
	var ups, downs []time.Duration
	events := make([]device.Event, 8)
	for i := range events {
		e, err := m.dev.NewEvent()
		if err != nil {
			return err
		}
		defer e.Close()
		events[i] = e
	}
	for range repeats {
		for i := range 3 {
			m.s.Record(events[i])
			m.s.CopyH2D(p.up, p.from)
			other.s.Record(events[4+i])
			other.s.CopyD2H(p.to, p.down)
		}
		m.s.Record(events[3])
		other.s.Record(events[7])
		// Both streams have ended before the caller frees what they copy, also where one has failed.
		if err := errors.Join(m.s.Sync(), other.s.Sync()); err != nil {
			return err
		}
		ups = append(ups, max(1, events[2].Elapsed(events[1])))
		downs = append(downs, max(1, events[6].Elapsed(events[5])))
	}
	for _, way := range []struct {
		name string
		all  []time.Duration
	}{{"host to device, both ways", ups}, {"device to host, both ways", downs}} {
		all := way.all
		slices.Sort(all)
		said := r.rate(way.name, float64(len(p.from))/all[len(all)/2].Seconds()/1e9, "GB/s", "while the other direction runs")
		if r.machine != nil {
			said.predict(r.machine.Link.Both/2, 1)
		}
	}
	return nil
}
