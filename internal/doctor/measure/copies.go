package measure

import (
	"errors"
	"fmt"
	"time"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
	"mt/host"
)

// Memory is the kind of host memory in a copy.
type Memory int

// The kinds of host memory.
const (
	Pinned     Memory = iota // memory of the device's AllocHost
	Registered               // long-lived memory passed to Register, like the memory of tiles
	Pageable                 // ordinary memory
)

func (k Memory) String() string { return [...]string{"pinned", "registered", "pageable"}[k] }

// H2D measures copies of bytes bytes from host memory of the given kind to the device.
func (m *Meter) H2D(bytes int64, kind Memory) (Seconds, error) {
	return m.copies(bytes, kind, func(c *ends) { m.s.CopyH2D(c.up, c.from) })
}

// D2H measures copies of bytes bytes from the device to host memory of the given kind.
func (m *Meter) D2H(bytes int64, kind Memory) (Seconds, error) {
	return m.copies(bytes, kind, func(c *ends) { m.s.CopyD2H(c.to, c.down) })
}

// D2D measures copies inside the device's memory. Each copy reads and writes bytes bytes.
func (m *Meter) D2D(bytes int64) (Seconds, error) {
	return m.copies(bytes, Pinned, func(c *ends) { m.s.CopyD2D(c.down, c.up) })
}

// Peer measures copies of bytes bytes to another device, which this device must be able to reach
// (device.Device.Reach).
func (m *Meter) Peer(to device.Device, bytes int64) (took Seconds, err error) {
	c, err := m.ends(bytes, Pinned)
	if err != nil {
		return Seconds{}, err
	}
	defer c.free()
	into, err := to.Alloc(accounts.Workspace, bytes)
	if err != nil {
		return Seconds{}, fmt.Errorf("measure: copy %d bytes to another device: %w", bytes, err)
	}
	defer to.Free(into)
	if took, err = m.enqueued(func() { m.s.CopyPeer(to, into, c.up) }); err != nil {
		return Seconds{}, fmt.Errorf("measure: copy %d bytes to another device: %w", bytes, err)
	}
	return took, nil
}

func (m *Meter) copies(bytes int64, kind Memory, call func(*ends)) (Seconds, error) {
	c, err := m.ends(bytes, kind)
	if err != nil {
		return Seconds{}, err
	}
	defer c.free()
	t, err := m.enqueued(func() { call(c) })
	if err != nil {
		return Seconds{}, fmt.Errorf("measure: copy %d bytes, %s: %w", bytes, kind, err)
	}
	return t, nil
}

// Both measures copies of bytes bytes in both directions at once. Only copies that fully overlap with copies in the
// other direction count.
func (m *Meter) Both(bytes int64, kind Memory) (up, down Seconds, err error) {
	c, err := m.ends(bytes, kind)
	if err != nil {
		return up, down, err
	}
	defer c.free()
	var ups, downs []float64
	for run := range m.o.Runs + 1 {
		u, d, err := m.bothOnce(c)
		if err != nil {
			return up, down, fmt.Errorf("measure: copy %d bytes both ways, %s: %w", bytes, kind, err)
		}
		if run > 0 {
			ups, downs = append(ups, u.Seconds()), append(downs, d.Seconds())
		}
	}
	return Sum(ups), Sum(downs), nil
}

// bothOnce makes three copies in each direction, both directions at once. It returns the times of the second copies,
// which overlap with copies of the other direction from start to end.
func (m *Meter) bothOnce(c *ends) (up, down time.Duration, err error) {
	e := m.events
	for i := range 3 {
		m.s.Record(e[i])
		m.s.CopyH2D(c.up, c.from)
		m.back.Record(e[4+i])
		m.back.CopyD2H(c.to, c.down)
	}
	m.s.Record(e[3])
	m.back.Record(e[7])
	// Both streams must be idle before the caller frees the memory, also after an error.
	if err := errors.Join(m.s.Sync(), m.back.Sync()); err != nil {
		return 0, 0, err
	}
	return max(1, e[2].Elapsed(e[1])), max(1, e[6].Elapsed(e[5])), nil
}

// ends holds the memory of measured copies: two ranges on the device and two on the host, one pair
// for each direction.
type ends struct {
	up, down device.Mem
	from, to []byte
	undo     []func()
}

func (c *ends) free() {
	for i := len(c.undo) - 1; i >= 0; i-- {
		c.undo[i]()
	}
}

// ends allocates both sides of copies of bytes bytes.
func (m *Meter) ends(bytes int64, kind Memory) (*ends, error) {
	if bytes < 1 || kind < Pinned || kind > Pageable {
		return nil, fmt.Errorf("measure: copy of %d bytes: want at least 1", bytes)
	}
	c := &ends{}
	if err := m.fillEnds(c, bytes, kind); err != nil {
		c.free()
		return nil, fmt.Errorf("measure: copy %d bytes, %s: %w", bytes, kind, err)
	}
	return c, nil
}

func (m *Meter) fillEnds(c *ends, bytes int64, kind Memory) (err error) {
	for _, b := range []*[]byte{&c.from, &c.to} {
		if err := m.hostMemory(c, b, bytes, kind); err != nil {
			return err
		}
		for i := range *b {
			(*b)[i] = byte(i*7 + i>>8)
		}
	}
	for _, mem := range []*device.Mem{&c.up, &c.down} {
		if *mem, err = m.dev.Alloc(accounts.Workspace, bytes); err != nil {
			return err
		}
		c.undo = append(c.undo, func() { m.dev.Free(*mem) })
	}
	m.s.CopyH2D(c.up, c.from)
	m.s.CopyH2D(c.down, c.from)
	return m.s.Sync()
}

// hostMemory sets b to bytes of host memory of the given kind, and adds to c.undo what releases it.
func (m *Meter) hostMemory(c *ends, b *[]byte, bytes int64, kind Memory) (err error) {
	if kind == Pinned {
		if *b, err = m.dev.AllocHost(bytes); err == nil {
			c.undo = append(c.undo, func() { m.dev.FreeHost(*b) })
		}
		return err
	}
	arena, err := host.NewArena(accounts.GradientSlabs, bytes, nil)
	if err != nil {
		return err
	}
	c.undo = append(c.undo, func() { _ = arena.Close() })
	*b = arena.Bytes()
	if kind == Registered {
		if err := m.dev.Register(*b); err != nil {
			return err
		}
		c.undo = append(c.undo, func() { m.dev.Unregister(*b) })
		if d, ok := device.Inner(m.dev).(interface{ AwaitPinned() }); ok {
			d.AwaitPinned() // measure memory that is fully pinned
		}
	}
	return nil
}

// PinThreads is the number of threads with which a GPU run pins host memory.
const PinThreads = 8

// Register measures how long the device takes to pin bytes of host memory. It measures once with each number of
// threads in threads and returns the results in that order. For a device that does not pin memory it returns nil.
func (m *Meter) Register(bytes int64, threads []int) (out []Seconds, err error) {
	d, ok := device.Inner(m.dev).(interface {
		RegisterBy(threads int, memory ...[]byte) error
	})
	if !ok {
		return nil, nil
	}
	arena, err := host.NewArena(accounts.GradientSlabs, bytes, nil)
	if err != nil {
		return nil, fmt.Errorf("measure: register %d bytes: %w", bytes, err)
	}
	defer func() { err = errors.Join(err, arena.Close()) }()
	for _, n := range threads {
		took, err := m.o.times(func(repeats int) (sum time.Duration, err error) {
			for range repeats {
				begin := time.Now()
				if err := d.RegisterBy(n, arena.Bytes()); err != nil {
					return 0, err
				}
				sum += time.Since(begin)
				m.dev.Unregister(arena.Bytes())
			}
			return sum, nil
		})
		if err != nil {
			return nil, fmt.Errorf("measure: register %d bytes by %d threads: %w", bytes, n, err)
		}
		out = append(out, took)
	}
	return out, nil
}

// Launch is the fixed cost of an operation.
type Launch struct {
	Enqueue Seconds // host time to enqueue one operation
	Stream  Seconds // stream time of one operation in a long queue
	// RoundTrip is the time from enqueueing an operation until the host knows that it is complete.
	RoundTrip Seconds
}

// launches is the number of operations that one measurement puts into the queue.
const launches = 256

// Launch measures the smallest operation, a Scale of one element.
func (m *Meter) Launch() (Launch, error) {
	mem, err := m.dev.Alloc(accounts.Workspace, 4)
	if err != nil {
		return Launch{}, fmt.Errorf("measure: launch: %w", err)
	}
	defer m.dev.Free(mem)
	m.s.Zero(mem)
	small := op.Scale{X: mem.Tensor(device.F32, 0, 1), N: 1, Factor: 1}
	var enqueue, stream, trip []float64
	for run := range m.o.Runs + 1 {
		m.s.Record(m.events[0])
		start := time.Now()
		for range launches {
			op.Do(m.dev, m.s, small)
		}
		took := time.Since(start)
		m.s.Record(m.events[1])
		if err := m.s.Sync(); err != nil {
			return Launch{}, fmt.Errorf("measure: launch: %w", err)
		}
		start = time.Now()
		op.Do(m.dev, m.s, small)
		if err := m.s.Sync(); err != nil {
			return Launch{}, fmt.Errorf("measure: launch: %w", err)
		}
		if run > 0 {
			enqueue = append(enqueue, took.Seconds()/launches)
			stream = append(stream, max(1, m.events[1].Elapsed(m.events[0])).Seconds()/launches)
			trip = append(trip, time.Since(start).Seconds())
		}
	}
	return Launch{Enqueue: Sum(enqueue), Stream: Sum(stream), RoundTrip: Sum(trip)}, nil
}
