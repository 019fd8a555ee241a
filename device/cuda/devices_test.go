package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"mt/base/accounts"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
)

// work uses every kind of call of a device: two streams ordered by an event, copies of pinned and
// unpinned memory, kernels, matrix products and a notification. Its result depends on seed alone.
func work(d device.Device, seed int) (out []byte, err error) {
	const n, bytes = 16, 16 * 16 * 4
	m, err := d.Alloc(accounts.Batch, 6*bytes)
	if err != nil {
		return nil, err
	}
	defer d.Free(m)
	pinned, err := d.AllocHost(3 * bytes)
	if err != nil {
		return nil, err
	}
	defer d.FreeHost(pinned)
	up, err := d.NewStream("up")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, up.Close()) }()
	s, err := d.NewStream("compute")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	there, err := d.NewEvent()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	pageable := make([]byte, bytes)
	for i := range n * n {
		binary.LittleEndian.PutUint32(pinned[4*i:], math.Float32bits(float32((i*7+seed)%31)/8-2))
		binary.LittleEndian.PutUint32(pageable[4*i:], math.Float32bits(float32((i*5+seed)%29)/4-3))
	}
	f := func(i int64) device.Tensor { return m.Tensor(device.F32, i*bytes, n*n) }
	up.CopyH2D(f(0).Mem(), pinned[:bytes])
	up.CopyH2D(f(1).Mem(), pageable)
	up.Record(there)
	s.Wait(there)
	op.Do(d, s, op.MatMul{M: n, N: n, K: n, A: f(0), B: f(1), D: f(2)})
	op.Do(d, s, op.MatMul{M: n - seed%3, N: n, K: n, A: f(2), B: f(0), D: f(1), Ragged: true})
	half := m.Tensor(device.BF16, 3*bytes, n*n)
	op.Do(d, s, op.Convert{Dst: half, Src: f(2), N: n * n})
	op.Do(d, s, op.Convert{Dst: f(4), Src: half, N: n * n})
	op.Do(d, s, op.Scale{X: f(4), N: n * n, Factor: 0.5})
	s.CopyD2D(f(5).Mem(), f(4).Mem())
	s.CopyD2H(pinned[bytes:2*bytes], f(5).Mem())
	s.CopyD2H(pageable[:n], f(1).Mem().Slice(0, n))
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	err = errors.Join(<-told, up.Sync(), s.Sync())
	return append(slices.Clone(pinned[bytes:2*bytes]), pageable[:n]...), err
}

// TestTwoDevices: two devices of one driver work at the same time, called from several goroutines.
// The results are those of a single device.
func TestTwoDevices(t *testing.T) {
	testkit.NotShort(t)
	const workers, rounds = 4, 3
	for _, own := range []bool{false, true} {
		for _, mode := range []emu.Mode{emu.Eager, emu.Random, emu.Lazy} {
			t.Run(fmt.Sprintf("own=%v/mode=%d", own, mode), func(t *testing.T) {
				alone, _ := newDevice(t, emu.Options{Threads: 1}, Options{OwnMatMul: own})
				want := make([][]byte, workers*rounds)
				for i := range want {
					var err error
					if want[i], err = work(alone, i); err != nil {
						t.Fatal(err)
					}
				}
				drv, c := bind(t, emu.Options{Devices: 2, Mode: mode, Seed: 11, Threads: 1})
				var all sync.WaitGroup
				for ordinal := range 2 {
					all.Go(func() {
						d, err := New(Options{CUDA: c, Ordinal: ordinal, OwnMatMul: own})
						if err != nil {
							t.Error(err)
							return
						}
						var some sync.WaitGroup
						for w := range workers {
							some.Go(func() {
								for i := w; i < len(want); i += workers {
									if got, err := work(d, i); err != nil || !bytes.Equal(got, want[i]) {
										t.Errorf("device %d, %d: %v, or not what a device alone gives", ordinal, i, err)
									}
								}
							})
						}
						some.Wait()
						if err := d.Close(); err != nil {
							t.Error(err)
						}
						checkEmpty(t, d)
					})
				}
				all.Wait()
				if faults := drv.Faults(); len(faults) > 0 {
					t.Error(faults)
				}
			})
		}
	}
}

// TestOrdinal: all calls of the device with ordinal 1 reach GPU 1 and no other GPU, whichever OS
// threads they run on. An ordinal that does not exist is refused, and the error names it.
func TestOrdinal(t *testing.T) {
	drv, c := bind(t, emu.Options{Devices: 3, DeviceMemory: 2 << 30, ContextMemory: 300 << 20})
	d := testkit.Must(New(Options{CUDA: c, Ordinal: 1}))(t)
	for i := range 4 {
		if _, err := work(d, i); err != nil {
			t.Error(err)
		}
	}
	if got := drv.Contexts(); !slices.Equal(got, []int{1}) {
		t.Errorf("contexts on devices %v, want 1 alone", got)
	}
	first := testkit.Must(New(Options{CUDA: c, Ordinal: 0}))(t)
	m := testkit.Must(first.Alloc(accounts.WeightSlots, 64<<20))(t)
	last := testkit.Must(New(Options{CUDA: c, Ordinal: 2}))(t)
	if a, b := d.Usage().Limit, last.Usage().Limit; a != b || b < 1<<30 {
		t.Errorf("with memory of device 0 taken device 1 may use %d bytes and device 2 %d", a, b)
	}
	if u := last.Usage(); u.Capacity <= u.Limit {
		t.Errorf("a device of %d bytes has %d to give: some are left free", u.Capacity, u.Limit)
	}
	first.Free(m)
	for _, d := range []device.Device{first, d, last} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for ordinal, want := range map[int]string{3: "no CUDA device 3: cudaGetDeviceCount finds 3", -1: "cuda: device -1: "} {
		if _, err := New(Options{CUDA: c, Ordinal: ordinal}); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, cudart.ErrNoDevice) != (ordinal > 0) {
			t.Errorf("device %d: %v", ordinal, err)
		}
	}
}

// TestDevicesShareHostMemory: memory that two devices register is pinned for both, until the last of them unregisters
// it.
func TestDevicesShareHostMemory(t *testing.T) {
	drv, c := bind(t, emu.Options{Devices: 2})
	var devices []*dev
	for ordinal := range 2 {
		d := testkit.Must(New(Options{CUDA: c, Ordinal: ordinal}))(t)
		devices = append(devices, d.(*dev))
	}
	const bytes = 4096
	host := make([]byte, bytes)
	copies := func(d *dev) (staged int64) {
		t.Helper()
		m := testkit.Must(d.Alloc(accounts.Batch, bytes))(t)
		defer d.Free(m)
		s := testkit.Must(d.NewStream("copies"))(t)
		before := drv.PageableCopies()
		s.CopyH2D(m, host)
		s.CopyD2H(host, m)
		testkit.NoError(t, errors.Join(s.Sync(), s.Close()))
		return int64(drv.PageableCopies() - before)
	}
	for _, d := range devices {
		testkit.NoError(t, d.Register(host))
	}
	for round, users := range [][]*dev{devices, devices[1:]} {
		for _, d := range users {
			if n := copies(d); n != 0 || !pinned(d, host) || len(d.Notes()) != 0 {
				t.Errorf("round %d, %s: %d copies staged, pinned %v, notes %q", round, d.Name(), n, pinned(d, host), d.Notes())
			}
		}
		users[0].Unregister(host)
		if pinned(users[0], host) {
			t.Error("pinned after Unregister")
		}
	}
	if err := c.HostRegister(devices[0].context, host); err != nil { // no device has it registered any more
		t.Error(err)
	}
	if err := c.HostRegister(devices[0].context, host); !errors.Is(err, cudart.ErrAlreadyRegistered) {
		t.Errorf("registered twice for one device: %v", err)
	}
	if err := c.HostUnregister(devices[0].context, host); err != nil {
		t.Error(err)
	}
	for _, d := range devices {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if faults := drv.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
