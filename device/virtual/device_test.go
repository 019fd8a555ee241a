package virtual

import (
	"math"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// machine returns a test machine that moves 1 GB/s on every path, launches in no time, and
// multiplies at 1 TFLOP/s.
func machine() *rates.Machine {
	one := rates.Op{Rate: 1}
	return &rates.Machine{Name: "test", Device: rates.Device{Name: "test", Kind: "cuda", Memory: 1, Bandwidth: 1,
		Products:  map[string][]rates.Product{"fp32": {{Rate: 1}}},
		Attention: map[string][]rates.Attention{"fp32": {{Length: 1024, Dim: 64, Forward: 1, Backward: 1}}}},
		Link: rates.Link{Up: 1, Down: 1, Both: 1}, Host: rates.Host{Cores: 4, Memory: 1, Bandwidth: 10, Update: one, Norm: one, Gather: one}, Disk: rates.Disk{Write: 1, Read: 1}}
}

type rig struct {
	*testing.T
	clock *Clock
	dev   *Device
	mem   device.Mem
	host  []byte
}

func newRig(t *testing.T, m *rates.Machine) *rig {
	r := &rig{T: t, clock: &Clock{}, host: make([]byte, 1e6)}
	r.dev = New(r.clock, m, 0, false, func(n int64) ([]byte, error) { return make([]byte, n), nil })
	var err error
	if r.mem, err = r.dev.Alloc(accounts.Workspace, 1e6); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) stream(name string) device.Stream {
	s, err := r.dev.NewStream(name)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *rig) event() device.Event {
	e, err := r.dev.NewEvent()
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// rest runs the clock until no work and no timer is left.
func (r *rig) rest() { r.clock.Run(func() bool { return false }) }

func (r *rig) at(what string, want float64) func(error) {
	return func(err error) {
		if got := r.clock.Time(); err != nil || math.Abs(got-want) > 1e-9 {
			r.Errorf("%s after %g s (%v), want %g", what, got, err, want)
		}
	}
}

// TestStreams: a stream runs its work in order, and several streams run concurrently. Wait refers
// to the last recording of the event before the call of Wait.
func TestStreams(t *testing.T) {
	r := newRig(t, machine())
	up, compute := r.stream("h2d"), r.stream("compute")
	ready, begun, done := r.event(), r.event(), r.event()
	compute.Wait(ready) // never recorded: complete
	compute.Record(begun)
	up.CopyH2D(r.mem, r.host) // 1 ms
	up.Record(ready)
	compute.Wait(ready)
	up.CopyH2D(r.mem, r.host) // another one, beside the product
	up.Record(ready)
	x := r.mem.Tensor(device.F32, 0, 128*128)
	op.Do(r.dev, compute, op.MatMul{M: 128, N: 128, K: 128, A: x, B: x, D: x}) // 4.2 µs by its FLOPs, 196.6 µs by its bytes
	compute.Record(done)
	up.Notify(r.at("both copies", 2e-3))
	compute.Notify(r.at("the product", 1e-3+196608e-9))
	r.rest()
	if d := done.Elapsed(begun).Seconds(); math.Abs(d-(1e-3+196608e-9)) > 1e-8 {
		t.Errorf("from begin to end %g s", d)
	}
}

// TestLink: if a link carries no more in both directions together than in one, two opposite copies
// take twice as long each.
func TestLink(t *testing.T) {
	r := newRig(t, machine())
	up, down := r.stream("h2d"), r.stream("d2h")
	up.CopyH2D(r.mem, r.host)
	down.CopyD2H(r.host, r.mem)
	up.Notify(r.at("up", 2e-3))
	down.Notify(r.at("down", 2e-3))
	r.rest()
	m := machine()
	m.Link.Both, m.Link.Latency = 2, 100
	r = newRig(t, m)
	up, down = r.stream("h2d"), r.stream("d2h")
	up.CopyH2D(r.mem, r.host)
	down.CopyD2H(r.host, r.mem)
	up.Notify(r.at("up", 1.1e-3))
	down.Notify(r.at("down", 1.1e-3))
	r.rest()
}

// TestPeers: a copy to another device uses separate wires, or the links of both devices. If the two are behind
// different switches, it also uses the links of both switches.
func TestPeers(t *testing.T) {
	for _, tc := range []struct {
		what  string
		peer  float64
		wires bool
		per   int
		ends  [3]float64 // in ms: the copy from device 0 to 2, and copies from the host to devices 2 and 3
	}{
		{"wires", 10, true, 1, [3]float64{0.1, 1, 1}},
		{"links", 0.5, false, 1, [3]float64{2.5, 1.5, 1}},  // two share the link of device 2, at 2/3 of their speeds; then one is alone
		{"one switch", 0.5, false, 4, [3]float64{2, 2, 2}}, // copies from the host share the switch's link
		{"two switches", 1, false, 2, [3]float64{3, 3, 3}}, // all three come over the link of one switch
	} {
		t.Run(tc.what, func(t *testing.T) {
			m := machine()
			m.Link.Both, m.Link.Peer, m.Link.Wires, m.Link.PerSwitch = 2, tc.peer, tc.wires, tc.per
			clock := &Clock{Devices: 4, PerSwitch: tc.per}
			var devs []*Device
			var streams []device.Stream
			for i := range 4 {
				devs = append(devs, New(clock, m, i, false, nil))
				s, _ := devs[i].NewStream("s")
				streams = append(streams, s)
			}
			if ok, _ := devs[0].Reach(devs[2]); !ok {
				t.Error("the devices do not reach each other")
			}
			var got [3]float64
			ends := func(i int) func(error) { return func(error) { got[i] = 1e3 * clock.Time() } }
			mem, host := device.Mem{Addr: device.Align, Bytes: 1e6}, make([]byte, 1e6)
			streams[0].CopyPeer(devs[2], mem, mem)
			streams[0].Notify(ends(0))
			for i, s := range streams[2:] {
				s.CopyH2D(mem, host)
				s.Notify(ends(1 + i))
			}
			clock.Run(func() bool { return false })
			for i, want := range tc.ends {
				if math.Abs(got[i]-want) > 1e-6 {
					t.Errorf("the copies end after %v ms, want %v", got, tc.ends)
				}
			}
			m.Link.Peer = 0
			if ok, _ := devs[0].Reach(devs[2]); ok {
				t.Error("devices reach each other that do not copy to each other")
			}
		})
	}
}

// TestPeersThatDiffer: two devices copy to each other directly only if both can. They use the
// slower of both rates, and separate wires (NVLink) only if both have them.
func TestPeersThatDiffer(t *testing.T) {
	for _, tc := range []struct {
		first, second rates.Link
		reach         bool
		ms            float64 // from one to the other, either way, beside a copy from the host
	}{
		{rates.Link{Peer: 10}, rates.Link{}, false, 0},
		{rates.Link{Peer: 10, Wires: true}, rates.Link{Peer: 0.5, Wires: true}, true, 2},
		{rates.Link{Peer: 0.5, Wires: true}, rates.Link{Peer: 0.25}, true, 4.25}, // at 4/5 of its speed while the link is shared
	} {
		for from := range 2 {
			clock := &Clock{Devices: 2}
			var devs []*Device
			for i, l := range []rates.Link{tc.first, tc.second} {
				m := machine()
				m.Link.Both, m.Link.Peer, m.Link.Wires = 2, l.Peer, l.Wires
				devs = append(devs, New(clock, m, i, false, nil))
			}
			if ok, _ := devs[from].Reach(devs[1-from]); ok != tc.reach {
				t.Errorf("%+v and %+v reach each other: %v", tc.first, tc.second, ok)
			}
			if !tc.reach {
				continue
			}
			got, mem := 0.0, device.Mem{Addr: device.Align, Bytes: 1e6}
			s, _ := devs[from].NewStream("s")
			beside, _ := devs[1-from].NewStream("beside")
			beside.CopyH2D(mem, make([]byte, 1e6))
			s.CopyPeer(devs[1-from], mem, mem)
			s.Notify(func(error) { got = 1e3 * clock.Time() })
			clock.Run(func() bool { return false })
			if math.Abs(got-tc.ms) > 1e-6 {
				t.Errorf("a copy between %+v and %+v takes %g ms, want %g", tc.first, tc.second, got, tc.ms)
			}
		}
	}
}

// TestPeersInTurn: consecutive copies from one device to two others are not joined, and each uses
// its own destination's wires.
func TestPeersInTurn(t *testing.T) {
	m := machine()
	m.Link.Both, m.Link.Peer, m.Link.Wires = 2, 1, true
	clock := &Clock{Devices: 3}
	var devs [3]*Device
	for i := range devs {
		devs[i] = New(clock, m, i, false, nil)
	}
	one, _ := devs[0].NewStream("peer")
	two, _ := devs[1].NewStream("peer")
	mem := device.Mem{Addr: device.Align, Bytes: 1e6}
	one.CopyPeer(devs[1], mem, mem)
	one.CopyPeer(devs[1], mem, mem)
	one.CopyPeer(devs[2], mem, mem) // while the other device copies there too
	for range 3 {
		two.CopyPeer(devs[2], mem, mem)
	}
	var end float64
	one.Notify(func(error) { end = 1e3 * clock.Time() })
	clock.Run(func() bool { return false })
	if math.Abs(end-4) > 1e-6 {
		t.Errorf("three copies end after %g ms, want 4", end)
	}
}

// TestEnqueue: enqueueing takes the host time, and a command starts no earlier than it is enqueued,
// even if the device is idle.
func TestEnqueue(t *testing.T) {
	m := machine()
	m.Device.Enqueue = 1000
	r := newRig(t, m)
	s := r.stream("compute")
	r.clock.After(0, func() {
		s.Zero(r.mem.Slice(0, 1e5)) // 0.1 ms each, 1 ms to enqueue
		s.Zero(r.mem.Slice(0, 1e5))
		s.Notify(r.at("both", 3e-3))
	})
	r.rest()
}

// TestCPU: on a CPU device, operations and copies share the host's cores.
func TestCPU(t *testing.T) {
	m := machine()
	m.Device.Kind, m.Link.Cores, m.Link.Both = "cpu", 4, 2
	r := newRig(t, m)
	up, compute := r.stream("h2d"), r.stream("compute")
	up.CopyH2D(r.mem, r.host)
	compute.Zero(r.mem)
	up.Notify(r.at("the copy", 2e-3))
	compute.Notify(r.at("the zeroes", 2e-3))
	r.rest()
}

// TestIntegrated: if device memory is host memory, operations and copies share the bandwidth of
// host memory. A copy both reads and writes there.
func TestIntegrated(t *testing.T) {
	for integrated, want := range map[bool][2]float64{false: {1e-3, 1e-3}, true: {1.5e-3, 1.5e-3}} {
		m := machine()
		m.Device.Integrated, m.Host.Bandwidth = integrated, 2
		r := newRig(t, m)
		up, compute := r.stream("h2d"), r.stream("compute")
		up.CopyH2D(r.mem, r.host)
		compute.Zero(r.mem)
		up.Notify(r.at("the copy", want[0]))
		compute.Notify(r.at("the zeroes", want[1]))
		r.rest()
	}
}

// TestEngines: a copy engine runs copies of one direction one after another, whole, in the order in
// which they are ready. So a tile that becomes ready during activation copies waits for the rest of
// one copy: for all activations if they are a single copy, for a piece if they are cut. Consecutive
// copies are not joined into one longer than a piece.
func TestEngines(t *testing.T) {
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		piece, tile int64
		want        float64 // when the tile is there, in seconds
	}{
		"whole":       {256 * mib, mib, 257 * mib / 1e9},
		"pieces":      {32 * mib, mib, 33 * mib / 1e9},
		"small":       {8 * mib, mib, 33 * mib / 1e9}, // four small copies count as one
		"larger tile": {32 * mib, 64 * mib, 96 * mib / 1e9},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, machine())
			blank := make([]byte, 256*mib)
			mem := testkit.Must(r.dev.Alloc(accounts.Workspace, 256*mib))(t)
			activations, tiles, other := r.stream("activations in"), r.stream("h2d"), r.stream("d2h")
			gate := r.event()
			activations.CopyH2D(mem.Slice(0, 1), blank[:1]) // runs while the others are enqueued
			activations.Record(gate)
			for off := int64(0); off < 256*mib; off += tc.piece {
				activations.CopyH2D(mem.Slice(off, tc.piece), blank[:tc.piece])
			}
			tiles.Wait(gate)
			tiles.CopyH2D(mem.Slice(0, tc.tile), blank[:tc.tile])
			tiles.Notify(func(error) {
				if got := r.clock.Time(); math.Abs(got-tc.want) > 1e-6 {
					t.Errorf("the tile is there after %g s, want %g", got, tc.want)
				}
			})
			all := float64(256*mib) / 1e9
			if tc.piece < 256*mib { // the tile comes between
				all += float64(tc.tile) / 1e9
			}
			activations.Notify(func(error) {
				if got := r.clock.Time(); math.Abs(got-all) > 1e-6 {
					t.Errorf("all is there after %g s, want %g", got, all)
				}
			})
			other.Notify(r.at("the other direction", 0))
			r.rest()
		})
	}
}

// TestRestart: operations after an idle time take up to twice as long, until the machine's restart
// time has been lost in total, or the idle time if that is shorter. Copies lose nothing.
func TestRestart(t *testing.T) {
	m := machine()
	m.Device.Restart = 1500
	r := newRig(t, m)
	up, compute := r.stream("h2d"), r.stream("compute")
	ready := r.event()
	op := func(ms int64) { compute.Zero(r.mem.Slice(0, ms*1e5)); compute.Zero(r.mem.Slice(0, ms*9e5)) } // one after the other
	fetch := func() {
		up.CopyH2D(r.mem, r.host) // 1 ms
		up.Record(ready)
		compute.Wait(ready)
	}
	fetch()
	op(1)
	compute.Notify(r.at("an operation of 1 ms after 1 ms", 0.003))
	op(1)
	compute.Notify(r.at("one right behind it", 0.004))
	r.rest()
	fetch() // the stream is idle from the end of the last operation on
	fetch()
	op(1)
	compute.Notify(r.at("an operation of 1 ms after 2 ms", 0.004+0.002+0.002))
	op(1)
	compute.Notify(r.at("one that loses the rest", 0.008+0.0015))
	up.CopyH2D(r.mem, r.host)
	up.Notify(r.at("a copy", 0.007))
	r.rest()
}

// TestRefusedMemory: a negative size is refused, and Unified returns what New was told.
func TestRefusedMemory(t *testing.T) {
	for _, unified := range []bool{false, true} {
		d := New(&Clock{}, machine(), 0, unified, nil)
		if _, err := d.Alloc(accounts.Workspace, -1); err == nil || d.Unified() != unified {
			t.Errorf("unified %t: %t, %v", unified, d.Unified(), err)
		}
	}
}

// TestCoresOfCopies: two copies that each take half of the host's cores do not slow each other
// down.
func TestCoresOfCopies(t *testing.T) {
	m := machine()
	m.Link.Both, m.Link.Cores = 2, 2
	r := newRig(t, m)
	up, down := r.stream("h2d"), r.stream("d2h")
	up.CopyH2D(r.mem, r.host)
	down.CopyD2H(r.host, r.mem)
	up.Notify(r.at("up", 1e-3))
	down.Notify(r.at("down", 1e-3))
	r.rest()
}

// TestWork: an operation on a CPU uses its cores and host memory, and no other device's resources.
// A work of zero seconds keeps its shares, even after the stream was idle.
func TestWork(t *testing.T) {
	m := machine()
	m.Device.Kind = "cpu"
	r := newRig(t, m)
	w := r.dev.work(rates.Cost{Seconds: 1, Cores: 1, Bytes: 5e9})
	if w.Share[Compute] != 0 || w.Share[Cores] != 0.25 || w.Share[HostMemory] != 0.5 {
		t.Errorf("shares %v", w.Share)
	}
	w.Seconds = 0
	if got := r.stream("compute").(*stream).restarted(w); got != w {
		t.Errorf("%+v, want %+v", got, w)
	}
}

// TestEnqueueApart: works with an event between them are not joined. They run one after another,
// even if all were enqueued while the stream waited for the first.
func TestEnqueueApart(t *testing.T) {
	m := machine()
	m.Device.Enqueue = 1000
	r := newRig(t, m)
	s, e := r.stream("compute"), r.event()
	r.clock.After(0, func() {
		for range 3 {
			s.Zero(r.mem) // 1 ms each, 1 ms to enqueue
			s.Record(e)
		}
		s.Notify(r.at("all", 7e-3))
	})
	r.rest()
}

// TestRepeat: a call with a known key enqueues the operations of the first call, and its function is not called. If
// the first call enqueued something else than operations, the function is called again.
func TestRepeat(t *testing.T) {
	for _, other := range []bool{false, true} {
		r := newRig(t, machine())
		s, e, calls := r.stream("compute"), r.event(), 0
		launch := func() {
			calls++
			s.Zero(r.mem) // 1 ms
			s.CopyD2D(r.mem.Slice(0, 5e5), r.mem.Slice(5e5, 5e5))
			if other {
				s.Record(e)
			}
		}
		for range 3 {
			r.dev.Repeat(s, "key", launch)
		}
		s.Notify(r.at("three launches", 6e-3))
		r.rest()
		if want := map[bool]int{false: 1, true: 3}[other]; calls != want {
			t.Errorf("other %t: %d calls, want %d", other, calls, want)
		}
	}
}
