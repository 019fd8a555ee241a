package cpu

import (
	"fmt"
	"sync"
	"time"

	"mt/base/parallel"
	"mt/device"
	"mt/device/cpu/vec"
)

// Options configure a device. The zero value uses all cores and any memory.
type Options struct {
	Threads     int   // computing goroutines; 0: GOMAXPROCS
	MemoryLimit int64 // limit of device memory in bytes; 0: none
	// Unified makes the device use host memory in place (Device.BindHost). Otherwise tiles are copied, as on a GPU.
	Unified bool
	// LinkLimit is the most bytes a second that copies between host memory and device memory, or to another device,
	// move in each direction; 0: no limit.
	LinkLimit float64
	// Delay returns the time that a stream sleeps before its n-th command, counted from 0; nil: no sleep. Tests use
	// Delay to change the order of events.
	Delay func(stream string, n int64) time.Duration
}

// dev implements device.Device on the host's cores.
type dev struct {
	opts    Options
	name    string
	pool    *parallel.Pool
	scratch scratchList

	mu      sync.Mutex
	blocks  map[uintptr]*block
	usage   device.Usage
	streams int
	closed  bool
}

// New returns a device that computes on the host's cores.
func New(o Options) (device.Device, error) {
	level, err := vec.Level()
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	if o.Threads < 0 || o.MemoryLimit < 0 {
		return nil, fmt.Errorf("cpu: threads %d, memory limit %d: neither may be negative", o.Threads, o.MemoryLimit)
	}
	pool := parallel.New(o.Threads)
	return &dev{
		opts:   o,
		name:   fmt.Sprintf("cpu (%d threads, %s)", pool.Threads(), level),
		pool:   pool,
		blocks: map[uintptr]*block{},
		usage:  device.Usage{Limit: o.MemoryLimit},
	}, nil
}

func (d *dev) Name() string  { return d.name }
func (d *dev) Kind() string  { return "cpu" }
func (d *dev) Unified() bool { return d.opts.Unified }

// Reach returns true for every other CPU device, because all of them compute in host memory.
func (d *dev) Reach(to device.Device) (bool, error) {
	other, ok := device.Inner(to).(*dev)
	return ok && other != d, nil
}

// NewEvent returns an event of the CPU device; it holds no resources.
func (d *dev) NewEvent() (device.Event, error) { return &event{}, nil }

// Do enqueues an operation on a stream of this package.
func (d *dev) Do(s device.Stream, o device.Op) {
	c, bad := command{name: o.Name()}, o.Check()
	if bad == nil {
		c.call, bad = table.Take(o)
	}
	on(s).do(c, bad)
}

// NewStream starts the goroutines of a stream.
func (d *dev) NewStream(name string) (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cpu: stream %s: the device is closed", name)
	}
	d.streams++
	return startStream(d, name), nil
}

func (d *dev) streamClosed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams--
}

// Close frees all memory and ends the computing goroutines.
func (d *dev) Close() error {
	d.mu.Lock()
	if d.streams > 0 {
		n := d.streams
		d.mu.Unlock()
		return fmt.Errorf("cpu: close: %d streams are still open", n)
	}
	d.closed = true
	for addr, b := range d.blocks {
		d.drop(addr, b)
	}
	d.mu.Unlock()
	d.pool.Close()
	return nil
}
