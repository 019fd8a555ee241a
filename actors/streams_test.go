package actors

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/layers/schedule"
)

// whose is a device that records, for each stream, whether it copies activations or something else
// between device and host.
type whose struct {
	device.Device
	mu     sync.Mutex
	acts   []device.Mem
	copies map[string]int // by stream and what it copied
}

func (d *whose) Alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	m, err := d.Device.Alloc(p, bytes)
	if err == nil && p == accounts.Activations {
		d.acts = append(d.acts, m)
	}
	return m, err
}

func (d *whose) NewStream(name string) (device.Stream, error) {
	s, err := d.Device.NewStream(name)
	return whoseStream{s, name, d}, err
}

func (d *whose) Do(s device.Stream, o device.Op) { d.Device.Do(s.(whoseStream).Stream, o) }

func (d *whose) Unwrap() device.Device { return d.Device }

func (d *whose) copied(name string, m device.Mem) {
	what := " something else"
	if slices.ContainsFunc(d.acts, func(a device.Mem) bool { return a.Addr <= m.Addr && m.Addr < a.Addr+uintptr(a.Bytes) }) {
		what = " activations"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copies[name+what]++
}

type whoseStream struct {
	device.Stream
	name string
	dev  *whose
}

func (s whoseStream) CopyH2D(dst device.Mem, src []byte) {
	s.dev.copied(s.name, dst)
	s.Stream.CopyH2D(dst, src)
}

func (s whoseStream) CopyD2H(dst []byte, src device.Mem) {
	s.dev.copied(s.name, src)
	s.Stream.CopyD2H(dst, src)
}

// TestActivationsHaveStreamsOfTheirOwn: copies of activations from and to the host have their own
// streams, and share none with weights and gradients. If a run copies no activations, these streams
// do not exist.
func TestActivationsHaveStreamsOfTheirOwn(t *testing.T) {
	apart := []string{"activations in activations", "activations out activations", "d2h something else", "h2d something else"}
	for name, tc := range map[string]struct {
		change func(*trial)
		want   []string
	}{
		"spilled":          {func(tr *trial) { tr.depths.ActivationSlots = 3 }, apart},
		"through the host": {func(tr *trial) { tr.order, tr.lane, tr.throughHost = schedule.Lanes, []int{0, 1, 0, 1, 0}, true }, apart},
		"in slots":         {func(tr *trial) { tr.depths.ActivationSlots = 100 }, apart[2:]},
	} {
		t.Run(name, func(t *testing.T) {
			tr := base()
			tr.copyTiles = true
			tc.change(&tr)
			copies := map[string]int{}
			var all []*whose
			tr.wrap = func(d device.Device) device.Device {
				w := &whose{Device: d, copies: map[string]int{}}
				all = append(all, w)
				return w
			}
			mustRun(t, tr)
			for _, d := range all {
				maps.Copy(copies, d.copies)
			}
			if got := slices.Sorted(maps.Keys(copies)); !slices.Equal(got, tc.want) {
				t.Errorf("copied: %q, want %q", got, tc.want)
			}
		})
	}
}
