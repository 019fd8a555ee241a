package rates

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// span is the range in which a figure is plausible. It reaches about a factor of 100 beyond the values of real
// machines. A figure outside the range is probably a typing error or in another unit.
type span struct{ least, most float64 }

var (
	flops     = span{1e-4, 1e5} // TFLOP/s
	bandwidth = span{1e-3, 1e5} // GB/s, of memory
	linkRate  = span{1e-2, 4e4} // GB/s: PCIe 3.0 x1 has 1, NVLink-C2C 375
	diskRate  = span{5e-4, 3e3} // GB/s: a hard disk has 0.1, four PCIe 5.0 disks 27
	// networkRate is in GB/s: 1 Gbit/s Ethernet has 0.125, eight cards of 400 Gbit/s have 400.
	networkRate = span{1e-3, 4e4}
	micros      = span{0, 1e5}    // µs
	gibs        = span{0.01, 1e6} // GiB
)

// checker collects the errors that Check finds in a machine. Each error names the field in the
// rates file.
type checker struct{ errs []error }

func (c *checker) within(field, unit string, value float64, s span) {
	switch {
	case value == 0 && s.least > 0:
		c.errs = append(c.errs, fmt.Errorf("%s is missing: want a number of %s between %g and %g", field, unit, s.least, s.most))
	case !(value >= s.least && value <= s.most):
		c.errs = append(c.errs, fmt.Errorf("%s is %g %s: want a number between %g and %g", field, value, unit, s.least, s.most))
	}
}

func (c *checker) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// Check returns an error that lists all missing and all implausible figures of m; nil if there are none.
func (m *Machine) Check() error {
	c := &checker{}
	m.Device.check(c)
	if !m.Device.Unified {
		m.Link.check(c)
	}
	for i, more := range m.More {
		sub := &checker{}
		more.Device.check(sub)
		if !more.Device.Unified {
			more.Link.check(sub)
		}
		for _, err := range sub.errs {
			c.fail("more_devices[%d]: %w", i, err)
		}
		if more.Device.Kind != m.Device.Kind {
			c.fail("more_devices[%d]: a %s device beside a %s device", i, more.Device.Kind, m.Device.Kind)
		}
	}
	m.Host.check(c)
	if n := m.Network; n != nil {
		n.check(c)
	}
	c.within("disk.write_gb_per_s", "GB/s", m.Disk.Write, diskRate)
	c.within("disk.read_gb_per_s", "GB/s", m.Disk.Read, diskRate)
	return errors.Join(c.errs...)
}

func (d *Device) check(c *checker) {
	if d.Kind != "cuda" && d.Kind != "cpu" {
		c.fail("device.kind is %q: want cuda or cpu", d.Kind)
	}
	if d.Kind == "cuda" {
		c.within("device.memory_gib", "GiB", d.Memory, gibs)
	}
	c.within("device.memory_gb_per_s", "GB/s", d.Bandwidth, bandwidth)
	if d.HostMemory != 0 {
		c.within("device.host_memory_gb_per_s", "GB/s", d.HostMemory, bandwidth)
	}
	c.within("device.launch_us", "µs", d.Launch, micros)
	c.within("device.enqueue_us", "µs", d.Enqueue, micros)
	c.within("device.restart_us", "µs", d.Restart, micros)
	dtypes := slices.Sorted(maps.Keys(d.Products))
	if len(dtypes) == 0 {
		c.fail("device.products is missing: want the rate of products for bf16, fp32 or both")
	}
	for _, dtype := range dtypes {
		if dtype != "bf16" && dtype != "fp32" {
			c.fail("device.products: the dtype %q is unknown: want bf16 or fp32", dtype)
		}
		if len(d.Products[dtype]) == 0 || len(d.Attention[dtype]) == 0 {
			c.fail("device.products and device.attention: want at least one rate each for %s", dtype)
		}
		for i, p := range d.Products[dtype] {
			at := fmt.Sprintf("device.products.%s[%d]", dtype, i)
			if zero := p.M == 0 && p.N == 0 && p.K == 0; !zero && (p.M <= 0 || p.N <= 0 || p.K <= 0) {
				c.fail("%s: the shape %d × %d × %d: want three positive numbers, or none for large products", at, p.M, p.N, p.K)
			}
			c.within(at+".tflops", "TFLOP/s", p.Rate, flops)
		}
		for i, a := range d.Attention[dtype] {
			at := fmt.Sprintf("device.attention.%s[%d]", dtype, i)
			if a.Length <= 0 || a.Dim <= 0 {
				c.fail("%s: length %d and dim %d: want positive numbers", at, a.Length, a.Dim)
			}
			c.within(at+".forward_tflops", "TFLOP/s", a.Forward, flops)
			c.within(at+".backward_tflops", "TFLOP/s", a.Backward, flops)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Ops)) {
		d.Ops[name].check(c, "device.ops."+name)
	}
}

func (o Op) check(c *checker, at string) {
	c.within(at+".fixed_us", "µs", o.Fixed, micros)
	c.within(at+".gb_per_s", "GB/s", o.Rate, bandwidth)
	c.within(at+".cores", "cores", o.Cores, span{0, 1e5})
}

func (l *Link) check(c *checker) {
	c.within("link.h2d_gb_per_s", "GB/s", l.Up, linkRate)
	c.within("link.d2h_gb_per_s", "GB/s", l.Down, linkRate)
	c.within("link.both_gb_per_s", "GB/s", l.Both, linkRate)
	if l.Both > 0 && l.Both < max(l.Up, l.Down)*0.3 {
		c.fail("link.both_gb_per_s is %g: both directions together cannot be that much slower than one, %g", l.Both, max(l.Up, l.Down))
	}
	c.within("link.latency_us", "µs", l.Latency, micros)
	c.within("link.cores", "cores", l.Cores, span{0, 1e5})
	if l.Pin != 0 {
		c.within("link.pin_gb_per_s", "GB/s", l.Pin, linkRate)
	}
	if l.Peer != 0 {
		c.within("link.peer_gb_per_s", "GB/s", l.Peer, linkRate)
	}
	if l.PerSwitch < 0 || l.PerSwitch > 64 {
		c.fail("link.devices_per_switch is %d: want a number of devices between 0 and 64", l.PerSwitch)
	}
}

func (h *Host) check(c *checker) {
	c.within("host.cores", "cores", float64(h.Cores), span{1, 1e5})
	c.within("host.memory_gib", "GiB", h.Memory, gibs)
	c.within("host.memory_gb_per_s", "GB/s", h.Bandwidth, bandwidth)
	h.Update.check(c, "host.update")
	for _, name := range slices.Sorted(maps.Keys(h.Updates)) {
		h.Updates[name].check(c, "host.updates."+name)
	}
	h.Norm.check(c, "host.norm")
	h.Gather.check(c, "host.gather")
	c.within("host.pack_s_per_mtoken", "s", h.Pack, span{0, 1e4})
	c.within("host.message_us", "µs", h.Message, micros)
}

// Load reads a machine from a file that Save wrote or that has the same format. An error names the file and the field.
func Load(path string) (*Machine, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rates: %w", err)
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, 16<<20))
	d.DisallowUnknownFields()
	m := new(Machine)
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("rates: %s: %w", path, err)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("rates: %s: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	m.Name = cmp.Or(m.Name, path)
	return m, nil
}

// Save writes m to a file. An older file is replaced in one step, so a reader never sees half a file.
func (m *Machine) Save(path string) error {
	if err := m.Check(); err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("rates: %w", errors.Join(err, os.Remove(tmp)))
	}
	return nil
}
