package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/device"
)

func newStream(t *testing.T, d device.Device, name string) device.Stream {
	t.Helper()
	s, err := d.NewStream(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newEvent(t *testing.T, d device.Device) device.Event {
	t.Helper()
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func alloc(t *testing.T, d device.Device, n int64) device.Mem {
	t.Helper()
	m, err := d.Alloc(device.ForActivations, n)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCopies(t *testing.T) {
	d := newDevice(t, Options{})
	s := newStream(t, d, "s")
	const n = 3<<20 + 5 // over the size that Zero clears at a time
	a, b := alloc(t, d, n), alloc(t, d, n)
	src, got := bytes.Repeat([]byte{1, 2, 3}, n/3+1)[:n], make([]byte, n)
	s.CopyH2D(a, src)
	s.CopyD2D(b, a)
	s.Zero(b.Slice(1, n-2))
	s.CopyD2H(got, b)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, n)
	want[0], want[n-1] = src[0], src[n-1]
	if !bytes.Equal(got, want) {
		t.Error("wrong bytes after H2D, D2D, Zero, D2H")
	}
}

// A gate is an event that completes when the test says so.
func gate(t *testing.T, d device.Device, name string) (device.Event, func()) {
	t.Helper()
	open := make(chan struct{})
	s, e := newStream(t, d, name), newEvent(t, d)
	on(s).do("gate", nil, func(*stream) error { <-open; return nil })
	s.Record(e)
	return e, sync.OnceFunc(func() { close(open) })
}

func TestWaitRefersToTheLastRecordBefore(t *testing.T) {
	d := newDevice(t, Options{})
	s := newStream(t, d, "s")
	never := newEvent(t, d)
	s.Wait(never) // never recorded: complete
	closed, open := gate(t, d, "first")
	defer open()
	s.Wait(never)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 3)
	s.Wait(closed)
	s.Notify(func(error) { order <- "after the gate" })
	// A later record does not concern the wait above: it would never end.
	blocked := make(chan struct{})
	late := newStream(t, d, "late")
	on(late).do("block", nil, func(*stream) error { <-blocked; return nil })
	late.Record(closed)
	order <- "gate opens"
	open()
	if a, b := <-order, <-order; a != "gate opens" || b != "after the gate" {
		t.Errorf("order %q, %q", a, b)
	}
	s.Wait(closed) // this one waits for the later record
	s.Notify(func(error) { order <- "after the block" })
	order <- "block ends"
	close(blocked)
	if a, b := <-order, <-order; a != "block ends" || b != "after the block" {
		t.Errorf("order %q, %q", a, b)
	}
}

func TestElapsed(t *testing.T) {
	d := newDevice(t, Options{})
	s, a, b := newStream(t, d, "s"), newEvent(t, d), newEvent(t, d)
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("between events never recorded: %v", got)
	}
	var inside time.Duration
	s.Record(a)
	on(s).do("spin", nil, func(*stream) error {
		for start := time.Now(); inside < time.Millisecond; inside = time.Since(start) {
		}
		return nil
	})
	s.Record(b)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := b.Elapsed(a); got < inside {
		t.Errorf("Elapsed is %v, between the records passed %v", got, inside)
	}
}

func TestNotifyKeepsOrder(t *testing.T) {
	d := newDevice(t, Options{})
	s := newStream(t, d, "s")
	var got []int
	for i := range 1000 {
		s.Notify(func(error) { got = append(got, i) })
	}
	if err := s.Close(); err != nil { // waits for them
		t.Fatal(err)
	}
	if len(got) != 1000 {
		t.Fatalf("%d notifications, want 1000", len(got))
	}
	for i, v := range got {
		if i != v {
			t.Fatalf("notification %d came as number %d", v, i)
		}
	}
}

// After a failure work is dropped, and everything else goes on.
func TestErrorsStick(t *testing.T) {
	cases := []struct {
		name, want string
		fail       func(d device.Device, s device.Stream)
	}{
		{"panic", "cpu: stream s: boom: panic: index", func(_ device.Device, s device.Stream) {
			on(s).do("boom", nil, func(*stream) error { panic("index") })
		}},
		{"panic on a worker", "cpu: stream s: boom: panic: 3", func(_ device.Device, s device.Stream) {
			on(s).do("boom", nil, func(s *stream) error {
				s.pool.Run(8, func(i int) {
					if i == 3 {
						panic(i)
					}
				})
				return nil
			})
		}},
		{"sizes", "cpu: stream s: CopyH2D: 1 bytes to 0 bytes", func(_ device.Device, s device.Stream) {
			s.CopyH2D(device.Mem{}, []byte{1})
		}},
		{"operands", "cpu: stream s: MatMul: A holds 0 elements, want 4", func(d device.Device, s device.Stream) {
			d.Ops().MatMul(s, device.MatMul{M: 2, N: 2, K: 2})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDevice(t, Options{})
			s, e := newStream(t, d, "s"), newEvent(t, d)
			before := false
			on(s).do("before", nil, func(*stream) error { before = true; return nil })
			c.fail(d, s)
			on(s).do("after", nil, func(*stream) error { t.Error("work after the failure was done"); return nil })
			s.Record(e)
			told := make(chan error, 1)
			s.Notify(func(err error) { told <- err })
			other := newStream(t, d, "other")
			other.Wait(e) // completes all the same
			if err := other.Sync(); err != nil {
				t.Error(err)
			}
			for _, err := range []error{<-told, s.Sync(), s.Err(), s.Close()} {
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			}
			if !before {
				t.Error("work before the failure was dropped")
			}
		})
	}
}

func TestClosedStream(t *testing.T) {
	d := newDevice(t, Options{})
	s, e := newStream(t, d, "s"), newEvent(t, d)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Zero(device.Mem{})
	s.Record(e)
	other := newStream(t, d, "other")
	other.Wait(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	for _, err := range []error{<-told, s.Sync(), s.Close()} {
		if err == nil || !strings.Contains(err.Error(), "the stream is closed") {
			t.Errorf("error %v", err)
		}
	}
	if err := other.Sync(); err != nil {
		t.Error(err)
	}
}

func TestBadArgumentsAreErrors(t *testing.T) {
	d := newDevice(t, Options{})
	m := alloc(t, d, 4096)
	ints := func(s device.Stream, v ...byte) device.Tensor {
		mem := alloc(t, d, int64(4*len(v)))
		b := make([]byte, 4*len(v))
		for i, x := range v {
			b[4*i] = x
		}
		s.CopyH2D(mem, b)
		return mem.Tensor(device.I32, 0, int64(len(v)))
	}
	f, h := m.Tensor(device.F32, 0, 64), m.Tensor(device.BF16, 512, 64)
	o := d.Ops()
	cases := []struct {
		want string
		call func(s device.Stream)
	}{
		{"Y is bf16, want fp32", func(s device.Stream) {
			o.RMSNorm(s, device.RMSNorm{Y: h, X: f, W: f, Rows: 1, Groups: 1, Dim: 4, XStride: 4, YStride: 4})
		}},
		{"DX may not be DY", func(s device.Stream) {
			o.RMSNormBackward(s, device.RMSNormBackward{DX: f, DY: f, X: f, W: f, DW: f, RStd: f, Rows: 1, Groups: 1, Dim: 4, Add: true})
		}},
		{"Rotary is 3", func(s device.Stream) { o.RoPE(s, device.RoPE{X: f, T: 1, Heads: 1, Dim: 4, Rotary: 3, Stride: 4}) }},
		{"Pos[1] is 9: want less than 2", func(s device.Stream) {
			o.RoPE(s, device.RoPE{X: f, Cos: f.Slice(0, 4), Sin: f.Slice(4, 4), Pos: ints(s, 1, 9), T: 2, Heads: 1, Dim: 4, Rotary: 4, Stride: 4})
		}},
		{"index[0] is 16: want less than 16", func(s device.Stream) { o.GatherRows(s, f, f, ints(s, 16), 1, 4) }},
		{"start[1] is 9: want 0 to 2", func(s device.Stream) { o.ScatterAddRows(s, f, f, ints(s, 0, 9), ints(s, 0, 1), 1, 2, 4) }},
		{"target of row 1 is 4: want less than 4", func(s device.Stream) {
			o.CrossEntropy(s, device.CrossEntropy{Logits: f, Targets: ints(s, 0, 4), Losses: f, T: 2, V: 4})
		}},
		{"3 heads do not share 2 key heads evenly", func(s device.Stream) {
			o.Attention(s, device.Attention{AttentionShape: device.AttentionShape{Heads: 3, KVHeads: 2}})
		}},
		{"sequence 0 has 2 queries and 1 keys", func(s device.Stream) {
			o.Attention(s, device.Attention{AttentionShape: device.AttentionShape{CuQ: ints(s, 0, 2), CuK: ints(s, 0, 1), Seqs: 1, TQ: 2,
				TK: 1, Heads: 1, KVHeads: 1, Dim: 2}, O: f, Q: f, K: f, V: f, QStride: 2, KStride: 2})
		}},
		{"src is int32, want fp32 or bf16", func(s device.Stream) { o.Convert(s, f, ints(s, 1), 1) }},
		{"an extent is negative", func(s device.Stream) { o.AddBiasGrad(s, f, f, -1, 2) }},
	}
	for i, c := range cases {
		s := newStream(t, d, fmt.Sprint(i))
		c.call(s)
		if err := s.Sync(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// Delays change nothing but the time.
func TestDelayIsAskedForEveryCommand(t *testing.T) {
	var mu sync.Mutex
	asked := map[string][]int64{}
	d := newDevice(t, Options{Delay: func(stream string, n int64) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		asked[stream] = append(asked[stream], n)
		return 0
	}})
	s := newStream(t, d, "s")
	s.Zero(alloc(t, d, 8))
	s.Record(newEvent(t, d))
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(asked); got != "map[s:[0 1 2]]" {
		t.Errorf("delays asked for: %s", got)
	}
}

func TestOpsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := newDevice(t, Options{Threads: 2})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<20).Tensor(device.F32, 0, 1<<18)
	op := func() {
		d.Ops().SwiGLU(s, x.Slice(0, 64<<10), x.Slice(64<<10, 128<<10), 1024, 64)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	op()
	// The queued closure and its loop body, Sync's mark and its channel.
	if got := testing.AllocsPerRun(100, op); got > 8 {
		t.Errorf("%v allocations an operation", got)
	}
}

func TestErrorsUnwrap(t *testing.T) {
	d := newDevice(t, Options{MemoryLimit: 1000})
	_, err := d.Alloc(device.ForWeights, 1001)
	var oom *device.OutOfMemory
	if !errors.As(err, &oom) || oom.Requested != 1001 || oom.Limit != 1000 || oom.Purpose != device.ForWeights {
		t.Errorf("error %v", err)
	}
}
