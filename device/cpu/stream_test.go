package cpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/device"
	"mt/device/conformance"
	"mt/device/op"
	"mt/internal/testkit"
)

// Short names for helpers of package conformance.
var (
	newStream = conformance.Stream
	newEvent  = conformance.Event
	alloc     = conformance.Alloc
	panics    = conformance.Panics
)

// TestContract: the CPU device passes the contract tests of package conformance, which cover
// everything except operations.
func TestContract(t *testing.T) {
	for name, o := range map[string]Options{
		"copying": {MemoryLimit: 64 << 20},
		"unified": {MemoryLimit: 64 << 20, Unified: true},
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Streams(t, func(t *testing.T) device.Device { return newDevice(t, o) }, hold)
		})
	}
}

// foreign wraps a device and hides its type, so that to the CPU device it is a device of another
// kind.
type foreign struct{ device.Device }

// TestPeers: CPU devices copy into each other's memory, and refuse a device of another kind.
func TestPeers(t *testing.T) {
	a, b := newDevice(t, Options{Threads: 1}), newDevice(t, Options{Threads: 2, Unified: true})
	conformance.Peers(t, a, b, foreign{b})
}

// function is an operation that a test defines by a Go function.
type function struct{ f func(*stream) error }

func (f *function) Name() string { return "function" }
func (f *function) Check() error { return nil }

// functions is the table with which tests run a function operation, because the device's own table
// does not have it.
var functions op.Table[*stream]

func init() { op.Add(&functions, func(s *stream, f *function) error { return f.f(s) }) }

// run enqueues the Go function f on s as an operation with the given name.
func run(s device.Stream, name string, f func(*stream) error) {
	call, err := functions.Take(&function{f})
	on(s).do(command{name: name, call: call}, err)
}

// hold blocks s with an operation that ends when the returned function is called.
func hold(s device.Stream) func() {
	open := make(chan struct{})
	run(s, "hold", func(*stream) error { <-open; return nil })
	return func() { close(open) }
}

func TestElapsed(t *testing.T) {
	d := newDevice(t, Options{})
	s, a, b := newStream(t, d, "s"), newEvent(t, d), newEvent(t, d)
	var inside time.Duration
	s.Record(a)
	run(s, "spin", func(*stream) error {
		for start := time.Now(); inside < time.Millisecond; inside = time.Since(start) {
		}
		return nil
	})
	s.Record(b)
	testkit.NoError(t, s.Sync())
	if got := b.Elapsed(a); got < inside {
		t.Errorf("Elapsed is %v, between the records passed %v", got, inside)
	}
}

func TestErrorsStick(t *testing.T) {
	for _, c := range []struct {
		name, want string
		run        func(s *stream) error
	}{
		{"error", "boom: it does", func(*stream) error { return errors.New("it does") }},
		{"panic", "boom: panic: index", func(*stream) error { panic("index") }},
		{"panic on a worker", "boom: panic: 3", func(s *stream) error {
			s.pool.Run(8, func(i int) {
				if i == 3 {
					panic(i)
				}
			})
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conformance.ErrorSticks(t, newDevice(t, Options{}), hold, c.want, func(s device.Stream) { run(s, "boom", c.run) })
		})
	}
}

// TestFirstErrorStays: Err keeps a stream's first error. Later errors are consequences of the first
// one and are dropped.
func TestFirstErrorStays(t *testing.T) {
	d := newDevice(t, Options{})
	s, m := newStream(t, d, "s"), alloc(t, d, 64)
	s.CopyD2D(m.Slice(0, 8), m.Slice(0, 16))
	s.CopyD2D(m.Slice(0, 4), m.Slice(0, 32))
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "16 bytes to 8 bytes") {
		t.Errorf("%v; want the first copy's", err)
	}
}

// TestBadIndicesAreErrors: operations check the values of index tensors before they access memory,
// so a bad index is an error.
func TestBadIndicesAreErrors(t *testing.T) {
	d := newDevice(t, Options{})
	f := alloc(t, d, 4096).Tensor(device.F32, 0, 64)
	ints := func(s device.Stream, v ...byte) device.Tensor {
		mem := alloc(t, d, int64(4*len(v)))
		b := make([]byte, 4*len(v))
		for i, x := range v {
			b[4*i] = x
		}
		s.CopyH2D(mem, b)
		return mem.Tensor(device.I32, 0, int64(len(v)))
	}
	conformance.BadArguments(t, d, []conformance.BadCall{
		{Want: "Pos[1] is 9: want less than 2", Call: func(s device.Stream) {
			op.Do(d, s, op.RoPE{X: f, Cos: f.Slice(0, 4), Sin: f.Slice(4, 4), Pos: ints(s, 1, 9), T: 2, Heads: 1, Dim: 4, Rotary: 4, Stride: 4})
		}},
		{Want: "Index[0] is 16: want less than 16", Call: func(s device.Stream) { op.Do(d, s, op.GatherRows{Dst: f, Src: f, Index: ints(s, 16), T: 1, C: 4}) }},
		{Want: "Start[1] is 9: want 0 to 2", Call: func(s device.Stream) {
			op.Do(d, s, op.ScatterAddRows{DRows: f, DY: f, Start: ints(s, 0, 9), Pos: ints(s, 0, 1), U: 1, T: 2, C: 4})
		}},
		{Want: "Index[1] is 16: want less than 16", Call: func(s device.Stream) {
			op.Do(d, s, op.ScaleRows{X: f, W: f, Index: ints(s, 15, 16), T: 2, C: 4, P: 16})
		}},
		{Want: "Index[0] is 3: want less than 3", Call: func(s device.Stream) {
			op.Do(d, s, op.ScaleRowsBackward{Y: f, DY: f.Slice(8, 8), W: f, DW: f, Index: ints(s, 3, 1), T: 2, C: 4, P: 3})
		}},
		{Want: "rows 1 to 3: the documents are 0 to 2", Call: func(s device.Stream) {
			op.Do(d, s, op.AddNoise{X: f, Cu: ints(s, 0, 2), T: 2, C: 4, Seqs: 1, From: 1})
		}},
		{Want: "sequences go from 0 to 3: want all of 4 tokens", Call: func(s device.Stream) {
			op.Do(d, s, op.PreferenceWeights{Weights: f, Losses: f, Targets: ints(s, 1, 1, 1, 1), Cu: ints(s, 0, 2, 3), Reference: f, T: 4, Pairs: 1,
				Loss: op.PreferenceLoss{Kind: op.Sigmoid, Beta: 1}})
		}},
		{Want: "Cu[1] is 5: want 0 to 2", Call: func(s device.Stream) {
			op.Do(d, s, op.ShortConv{Y: f, X: f.Slice(8, 8), W: f, Cu: ints(s, 0, 5), Seqs: 1, T: 2, C: 4, Taps: 2, XStride: 4})
		}},
		{Want: "Cu[1] is 1: want 2 to 2147483647", Call: func(s device.Stream) {
			op.Do(d, s, op.AddNoise{X: f, Cu: ints(s, 2, 1), T: 2, C: 4, Seqs: 1})
		}},
		{Want: "Index[1] is 2: want less than 2", Call: func(s device.Stream) {
			op.Do(d, s, op.AddRows{Dst: f, Src: f.Slice(8, 8), Index: ints(s, 0, 2), U: 2, T: 2, C: 4})
		}},
		{Want: "IDs[2] is 4: want less than 4", Call: func(s device.Stream) {
			op.Do(d, s, op.RouterBackward{DLogits: f, Logits: f, IDs: ints(s, 0, 3, 4, 1), DWeights: f, T: 2, E: 4, K: 2})
		}},
		{Want: "IDs[1] is 3: want less than 3", Call: func(s device.Stream) {
			op.Do(d, s, op.SortByExpert{IDs: ints(s, 2, 3), Order: f32AsI32(f), Rows: f32AsI32(f), Offsets: f32AsI32(f), N: 2, K: 1, E: 3})
		}},
		{Want: "target of row 1 is 4: want less than 4", Call: func(s device.Stream) {
			op.Do(d, s, op.CrossEntropy{Logits: f, Targets: ints(s, 0, 4), Losses: f, T: 2, V: 4})
		}},
		{Want: "sequence 0 has 2 queries and 1 keys", Call: func(s device.Stream) {
			op.Do(d, s, op.Attention{AttentionShape: op.AttentionShape{CuQ: ints(s, 0, 2), CuK: ints(s, 0, 1), Seqs: 1, TQ: 2,
				TK: 1, Heads: 1, KVHeads: 1, Dim: 2}, O: f, Q: f, K: f, V: f, QStride: 2, KStride: 2})
		}},
	})
}

func f32AsI32(t device.Tensor) device.Tensor {
	t.DType = device.I32
	return t
}

// TestChoose: choose returns different experts for any logits, even NaNs, and among equal logits
// those with the lowest index.
func TestChoose(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   []int32
	}{
		{[]float32{1, 3, 2, 3, 0}, []int32{1, 3, 2}},
		{[]float32{0, 0, 0, 0}, []int32{0, 1, 2}},
		{[]float32{-inf, -inf, 5, -inf}, []int32{2, 0, 1}},
		{[]float32{5, 4, 3, 2, 1, 6}, []int32{5, 0, 1}},
		{[]float32{1, 2, 3}, []int32{2, 1, 0}},
		{[]float32{nan, nan, nan, nan}, []int32{0, 1, 2}},
		{[]float32{1, nan, 3, 2}, []int32{0, 1, 2}}, // the order of the chosen does not matter
	} {
		got := []int32{-1, -1, -1}
		if choose(got, c.logits); !slices.Equal(got, c.want) {
			t.Errorf("of %v %v are chosen, want %v", c.logits, got, c.want)
		}
	}
}

// TestDelayIsAskedForEveryCommand: Options.Delay is called once for each command of each stream,
// with rising numbers.
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
	testkit.NoError(t, s.Sync())
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(asked); got != "map[s:[0 1 2]]" {
		t.Errorf("delays asked for: %s", got)
	}
}

func TestOpsHardlyAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := newDevice(t, Options{Threads: 2})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<20).Tensor(device.F32, 0, 1<<18)
	one := func() {
		op.Do(d, s, op.GLU{Activation: op.SiLU, Y: x.Slice(0, 64<<10), GU: x.Slice(64<<10, 128<<10), T: 1024, F: 64})
		testkit.NoError(t, s.Sync())
	}
	one()
	// An operation may allocate the loop body and its distribution to the workers, and Sync its
	// mark with a channel.
	if got := testing.AllocsPerRun(100, one); got > 7 {
		t.Errorf("%v allocations an operation", got)
	}
}
