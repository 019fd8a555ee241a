package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
)

// hangRig is a device whose emulated GPU never ends the launch or copy that hang names. The
// goroutine that checks streams does not run; tests call looks instead. told collects the reports.
type hangRig struct {
	t    *testing.T
	d    *dev
	drv  *emu.Driver
	told []string
}

func newHangRig(t *testing.T, hang string, o Options) *hangRig {
	r := &hangRig{t: t}
	o.Hang = func(text string) { r.told = append(r.told, text) }
	r.d, r.drv = newDevice(t, emu.Options{Hang: hang}, o)
	r.d.lookingEnds = make(chan struct{}) // no goroutine of its own
	return r
}

// looks checks all streams n times, as the goroutine does in n seconds.
func (r *hangRig) looks(n int) {
	for range n {
		r.d.look()
	}
}

// settle returns when all work on s that was enqueued so far has ended.
func (r *hangRig) settle(s device.Stream) {
	done := make(chan error)
	s.Notify(func(err error) { done <- err })
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
}

// wants fails the test unless there have been n reports and the last one contains all parts.
func (r *hangRig) wants(n int, parts ...string) {
	r.t.Helper()
	if len(r.told) != n {
		r.t.Fatalf("told %q, want %d", r.told, n)
	}
	for _, part := range parts {
		if !strings.Contains(r.told[n-1], part) {
			r.t.Errorf("told %q, want %q in it", r.told[n-1], part)
		}
	}
}

const leastLooks = int(hangLeast / lookEvery)

// TestHang: a launch that does not end is reported once, after hangLeast, with its operation and
// shape. Streams that wait for its stream, and streams for which it waits, are not reported. If the
// launch ends after all, that is reported too.
func TestHang(t *testing.T) {
	r := newHangRig(t, "kernel scale", Options{})
	compute, up, down := newStream(t, r.d, "compute"), newStream(t, r.d, "h2d"), newStream(t, r.d, "d2h")
	ready, idle, done := newEvent(t, r.d), newEvent(t, r.d), newEvent(t, r.d)
	x, y := alloc(t, r.d, 1<<12), alloc(t, r.d, 1<<12)
	f := x.Tensor(device.F32, 0, 1<<10)
	host := testkit.Must(r.d.AllocHost(1 << 13))(t)
	defer r.d.FreeHost(host)
	defer r.drv.EndHang(0)
	compute.Zero(x)
	r.settle(compute)
	up.CopyH2D(y, host[:1<<12])
	up.Record(ready)
	r.settle(up)
	compute.Wait(ready)
	op.Do(r.d, compute, op.Scale{X: f, N: 1 << 10, Factor: 2})
	compute.Record(idle)
	op.Do(r.d, compute, op.Convert{Dst: f, Src: y.Tensor(device.F32, 0, 1), N: 1})
	compute.Record(done)
	up.Wait(idle)
	up.CopyH2D(y.Slice(1<<11, 1<<11), host[:1<<11])
	down.Wait(done)
	down.CopyD2H(host[1<<12:], x)
	down.Notify(func(error) {})
	r.looks(leastLooks)
	r.wants(0)
	r.looks(1) // the first look may notice work that had ended before
	r.wants(1, "Emulated GPU, stream compute: Scale (8.0 KiB) by scale", "has not ended after 10s, and should take at most")
	if strings.Contains(r.told[0], "Convert") || strings.Contains(r.told[0], "one of") {
		t.Errorf("told %q, which names other launches", r.told[0])
	}
	if !Hangs() {
		t.Error("nothing hangs for who asks")
	}
	r.looks(500)
	r.wants(1)
	r.drv.EndHang(0)
	for _, s := range []device.Stream{compute, up, down} {
		testkit.NoError(t, s.Sync())
	}
	r.looks(leastLooks + 2)
	r.wants(2, "stream compute: what had not ended after 8m", "has ended")
	if Hangs() {
		t.Error("what has ended hangs for who asks")
	}
	if notes := r.d.Notes(); len(notes) != 0 {
		t.Errorf("notes %q", notes)
	}
}

// TestHangIsLookedFor: an open device checks its streams by itself, on a goroutine that ends with
// Close.
func TestHangIsLookedFor(t *testing.T) {
	told := make(chan string, 1)
	d, drv := newDevice(t, emu.Options{Hang: "set of"}, Options{Hang: func(text string) { told <- text }})
	d.lookEvery = time.Millisecond
	s := newStream(t, d, "s")
	s.Zero(alloc(t, d, 8))
	if text := <-told; !strings.Contains(text, "Zero (8 B) by cudaMemsetAsync has not ended after 10s") {
		t.Errorf("told %q", text)
	}
	drv.EndHang(0)
	if text := <-told; !strings.Contains(text, "has ended") {
		t.Errorf("told %q", text)
	}
}

// TestHangOfLostContext: when the context is lost, the error also names the work that had not ended
// before, even if that work is on another stream.
func TestHangOfLostContext(t *testing.T) {
	drv := emu.New(emu.Options{Hang: "kernel scale"})
	c := testkit.Must(cudart.New(drv))(t)
	opened := testkit.Must(New(Options{CUDA: c}))(t)
	d := opened.(*dev)
	d.lookingEnds = make(chan struct{})
	var streams []device.Stream
	for _, name := range []string{"compute", "h2d"} {
		s := testkit.Must(d.NewStream(name))(t)
		streams = append(streams, s)
	}
	x := alloc(t, d, 1<<12)
	op.Do(d, streams[0], op.Scale{X: x.Tensor(device.F32, 0, 4), N: 4, Factor: 2})
	for range leastLooks + 2 {
		d.look()
	}
	drv.EndHang(719)
	looks := on(streams[0]).unended.looks
	if d.look(); on(streams[0]).unended.looks != looks || Hangs() {
		t.Error("a lost context is waited for")
	}
	for _, s := range streams {
		if err := s.Sync(); !errors.Is(err, cudart.ErrContextLost) || !strings.Contains(err.Error(), "before that: Emulated GPU, stream compute: Scale (32 B) by scale") {
			t.Errorf("error %v", err)
		}
	}
	for _, s := range streams {
		_ = s.Close()
	}
	if notes := d.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "has not ended after 1") {
		t.Errorf("notes %q", notes)
	}
	_, _ = d.Close(), drv.Close() // of a device that is lost
}

// TestHangOfCopies: the report of a hanging copy says what kind of copy it is and how many bytes it
// has, for pinned and for unpinned memory.
func TestHangOfCopies(t *testing.T) {
	for _, tc := range []struct {
		hang, want string
		pinned     bool
		do         func(s device.Stream, m device.Mem, host []byte)
	}{
		{"copy to device", "CopyH2D (4.0 KiB) by cudaMemcpyAsync", true, func(s device.Stream, m device.Mem, host []byte) { s.CopyH2D(m, host) }},
		{"copy to device", "CopyH2D (4.0 KiB) by cudaMemcpyAsync", false, func(s device.Stream, m device.Mem, host []byte) { s.CopyH2D(m, host) }},
		{"copy to host", "CopyD2H (4.0 KiB) by cudaMemcpyAsync", true, func(s device.Stream, m device.Mem, host []byte) { s.CopyD2H(host, m) }},
		{"copy to host", "CopyD2H (4.0 KiB) by cudaMemcpyAsync", false, func(s device.Stream, m device.Mem, host []byte) { s.CopyD2H(host, m) }},
		{"set of", "Zero (4.0 KiB) by cudaMemsetAsync", false, func(s device.Stream, m device.Mem, _ []byte) { s.Zero(m) }},
	} {
		t.Run(fmt.Sprint(tc.want, tc.pinned), func(t *testing.T) {
			r := newHangRig(t, tc.hang, Options{})
			defer r.drv.EndHang(0)
			s, m, host := newStream(t, r.d, "s"), alloc(t, r.d, 1<<12), make([]byte, 1<<12)
			if tc.pinned {
				var err error
				if host, err = r.d.AllocHost(1 << 12); err != nil {
					t.Fatal(err)
				}
				defer r.d.FreeHost(host)
				defer s.Sync()
				defer r.drv.EndHang(0)
			}
			tc.do(s, m, host)
			for on(s).unended.count() == 0 { // the worker enqueues what is staged
				runtime.Gosched()
			}
			r.looks(leastLooks + 1)
			r.wants(1, "stream s: "+tc.want)
		})
	}
}

// TestHangOfProducts: the report of a hanging cuBLASLt product names the product, also if it hangs
// while algorithms are being timed.
func TestHangOfProducts(t *testing.T) {
	for _, timed := range []bool{false, true} {
		r := newHangRig(t, "matrix product", Options{Choices: NewChoices(timed, nil)})
		s, x := newStream(t, r.d, "s"), alloc(t, r.d, 1<<14)
		f := func(i int64) device.Tensor { return x.Tensor(device.F32, i<<12, 64) }
		enqueued := make(chan bool)
		go func() {
			op.Do(r.d, s, op.MatMul{M: 8, N: 4, K: 8, A: f(0), B: f(1), D: f(2), TransB: true})
			close(enqueued)
		}()
		for on(s).unended.count() < uint64(pick(timed, (1+timings)*3, 1)) {
			runtime.Gosched()
		}
		r.looks(leastLooks + 1)
		r.wants(1, "MatMul (8×4×8 ABᵀ) by cublasLtMatmul", pick(timed, "one of these 12: ", "s: MatMul"))
		r.drv.EndHang(0)
		<-enqueued
	}
}

// TestHangAfterItsTime: a launch with a long expected time is reported only after a hundred times
// that time. This holds even if the stream enqueued more launches than it lists.
func TestHangAfterItsTime(t *testing.T) {
	r := newHangRig(t, "kernel scale", Options{})
	defer r.drv.EndHang(0)
	s, x := newStream(t, r.d, "s"), alloc(t, r.d, 1<<12)
	scale := func() { op.Do(r.d, s, op.Scale{X: x.Tensor(device.F32, 0, 4), N: 4, Factor: 2}) }
	on(s).launcher.task = task{"Slow", op.Shape{}, 0.5}
	if err := on(s).launcher.launched("f"); err != nil { // half a second is behind a fence of its own
		t.Fatal(err)
	}
	r.settle(s)
	scale()
	on(s).launcher.task = task{"Slow", op.Shape{}, 0.25}
	testkit.NoError(t, on(s).launcher.launched("g"))
	for range 2 * mostUnended {
		scale()
	}
	r.looks(25)
	r.wants(0)
	r.looks(2)
	r.wants(1, "one of these 2: Scale (32 B) by scale", ", Slow by g has not ended after 26s, and should take at most 250ms")
	u := &on(s).unended
	first := u.from
	if n := len(u.launches); n != mostUnended || first != u.ended {
		t.Errorf("%d launches from %d on are kept, %d have ended", n, first, u.ended)
	}
	u.reached(r.d, first+1)
	if scale(); len(u.launches) != mostUnended-1 || u.from != first+1 {
		t.Error("a launch is kept behind some that are not")
	}
	r.drv.EndHang(0)
	testkit.NoError(t, s.Sync())
	scale()
	if n := len(u.launches); n != 1 || u.from+1 != u.n || len(u.fences) != 0 {
		t.Errorf("%d launches from %d on of %d, %d fences", n, u.from, u.n, len(u.fences))
	}
}

// TestLaunchesCostNoCalls: listing launches for hang reports makes no CUDA call. The only extra
// call is one event after each fenceSeconds of expected work.
func TestLaunchesCostNoCalls(t *testing.T) {
	r := newHangRig(t, "", Options{})
	s, x, e := newStream(t, r.d, "s"), alloc(t, r.d, 1<<12), newEvent(t, r.d)
	scale := func() { op.Do(r.d, s, op.Scale{X: x.Tensor(device.F32, 0, 4), N: 4, Factor: 2}) }
	scale() // loads the kernel
	count := func(f func()) (names []string) {
		from := r.drv.Calls()
		f()
		for i := from + 1; i <= r.drv.Calls(); i++ {
			if name := r.drv.CallName(i); name != "cuCtxSetCurrent" {
				names = append(names, name)
			}
		}
		return names
	}
	got := count(func() {
		scale()
		s.Zero(x)
		s.Record(e)
		s.Wait(e)
		scale()
	})
	if want := []string{"cuLaunchKernel", "cudaMemsetAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cuLaunchKernel"}; !slices.Equal(got, want) {
		t.Errorf("calls %q", got)
	}
	got = count(func() {
		for range 1000 {
			on(s).launcher.task.seconds = fenceSeconds / 200
			testkit.NoError(t, on(s).launcher.launched("f"))
		}
	})
	got = slices.DeleteFunc(got, func(name string) bool { return name == "cudaEventCreateWithFlags" })
	if n := len(got); n < 4 || n > 5 || got[0] != "cudaEventRecord" {
		t.Errorf("calls %q", got)
	}
}
