package measure_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mt/base/parallel"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/host"
	"mt/host/optim"
	"mt/internal/doctor/measure"
	"mt/internal/testkit"
)

// once are Options for tests that ignore the time: each piece of work is timed once, as briefly as
// possible.
var once = measure.Options{Runs: 1, Least: 1, Most: 1}

// meter returns a meter on the CPU. All its memory must be freed.
func meter(t *testing.T) *measure.Meter {
	t.Helper()
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 2}))(t)
	return closed(t, dev)
}

func closed(t *testing.T, dev device.Device) *measure.Meter {
	t.Helper()
	m := testkit.Must(measure.New(dev, once))(t)
	before, arenas := dev.Usage(), host.Usage()
	t.Cleanup(func() {
		if after := dev.Usage(); after.Now != before.Now {
			t.Errorf("memory did not come back: %v, before %v", after.Now, before.Now)
		}
		if after := host.Usage(); after.Now != arenas.Now {
			t.Errorf("host memory did not come back: %v, before %v", after.Now, arenas.Now)
		}
		if err := errors.Join(m.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

func positive(t *testing.T, what string, s measure.Seconds, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if !(s.Least > 0 && s.Least <= s.Median && s.Median <= s.Most) || s.Runs < 1 {
		t.Errorf("%s: %+v", what, s)
	}
}

// TestOperations: every operation that both kinds of device implement can be measured, except matrix products and
// attention, which have functions of their own. Shapes include odd ones.
func TestOperations(t *testing.T) {
	want := slices.DeleteFunc(conformance.OperationNames(), func(n string) bool {
		return slices.Contains([]string{"MatMul", "Attention", "AttentionBackward", "SelectKeys", "SparseAttention", "SparseAttentionBackward"}, n)
	})
	if got := measure.Operations(); !slices.Equal(got, want) {
		t.Errorf("measured are %v, of %v", got, want)
	}
	m := meter(t)
	for _, name := range measure.Operations() {
		for _, sh := range [][2]int{{16, 64}, {7, 9}, {1, 1}} {
			for _, dt := range []device.DType{device.F32, device.BF16} {
				o := measure.Operation{Name: name, Rows: sh[0], Cols: sh[1], DType: dt}
				s, bytes, err := m.Operation(o)
				positive(t, o.String(), s, err)
				if bytes < 1 && sh[0] > 1 {
					t.Errorf("%s moves %d bytes", o, bytes)
				}
			}
		}
	}
	for _, bad := range []measure.Operation{{Name: "Nothing", Rows: 1, Cols: 1}, {Name: "Scale", Cols: 1}, {Name: "Router", Rows: 1, Cols: 2000}} {
		if _, _, err := m.Operation(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func products(t *testing.T, m *measure.Meter) {
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, trans := range [][2]bool{{false, false}, {false, true}, {true, false}} {
			for _, accumulate := range []bool{false, true} {
				p := measure.Product{M: 16, N: 8, K: 24, TransA: trans[0], TransB: trans[1], DType: dt, Accumulate: accumulate}
				s, err := m.Product(p)
				positive(t, p.String(), s, err)
			}
		}
		for _, backward := range []bool{false, true} {
			a := measure.Attention{Tokens: 40, Length: 16, Heads: 4, KVHeads: 2, Dim: 64, DType: dt, Backward: backward}
			s, err := m.Attention(a)
			positive(t, a.String(), s, err)
		}
	}
}

func TestProductsAndAttention(t *testing.T) {
	m := meter(t)
	products(t, m)
	if _, err := m.Product(measure.Product{M: 1, N: 1}); err == nil {
		t.Error("a product without an extent: no error")
	}
	if _, err := m.Attention(measure.Attention{Tokens: 4, Length: 4, Heads: 3, KVHeads: 2, Dim: 8}); err == nil {
		t.Error("3 heads on 2: no error")
	}
}

// TestAttentionFLOPs: FLOPs agrees with a count of the unmasked (query, key) pairs one by one.
func TestAttentionFLOPs(t *testing.T) {
	for _, a := range []measure.Attention{{Tokens: 40, Length: 16, Heads: 3, Dim: 5}, {Tokens: 40, Length: 16, Window: 4, Heads: 3, Dim: 5, Backward: true}, {Tokens: 9, Length: 9, Window: 20, Heads: 1, Dim: 1}} {
		pairs := 0
		for q := range a.Tokens {
			for k := q / a.Length * a.Length; k <= q; k++ {
				if a.Window == 0 || q-k < a.Window {
					pairs++
				}
			}
		}
		want := 2 * 2 * float64(pairs*a.Heads*a.Dim)
		if a.Backward {
			want = 5 * 2 * float64(pairs*a.Heads*a.Dim)
		}
		if got := a.FLOPs(); got != want {
			t.Errorf("%s: %v FLOPs, want %v", a, got, want)
		}
	}
}

func TestCopies(t *testing.T) {
	m := meter(t)
	copies(t, m, 1<<16)
	if _, err := m.H2D(0, measure.Pinned); err == nil {
		t.Error("a copy of nothing: no error")
	}
}

func copies(t *testing.T, m *measure.Meter, bytes int64) {
	for _, kind := range []measure.Memory{measure.Pinned, measure.Registered, measure.Pageable} {
		up, err := m.H2D(bytes, kind)
		positive(t, "up "+kind.String(), up, err)
		down, err := m.D2H(bytes, kind)
		positive(t, "down "+kind.String(), down, err)
		up, down, err = m.Both(bytes, kind)
		positive(t, "both, up "+kind.String(), up, err)
		positive(t, "both, down "+kind.String(), down, err)
	}
	inside, err := m.D2D(bytes)
	positive(t, "inside", inside, err)
	l, err := m.Launch()
	positive(t, "enqueue", l.Enqueue, err)
	positive(t, "stream", l.Stream, err)
	positive(t, "round trip", l.RoundTrip, err)
}

// TestCUDA: all measurements also work on an emulated GPU, whose kernels check their arguments.
func TestCUDA(t *testing.T) {
	testkit.NotShort(t)
	drv := emu.New(emu.Options{})
	c, err := cudart.New(drv)
	testkit.NoError(t, err)
	dev, err := cuda.New(cuda.Options{CUDA: c})
	testkit.NoError(t, err)
	testkit.Close(t, drv)
	m := closed(t, dev)
	for _, name := range measure.Operations() {
		o := measure.Operation{Name: name, Rows: 5, Cols: 32, DType: device.BF16}
		s, _, err := m.Operation(o)
		positive(t, o.String(), s, err)
	}
	p := measure.Product{M: 16, N: 8, K: 16, DType: device.BF16, TransB: true}
	s, err := m.Product(p)
	positive(t, p.String(), s, err)
	a := measure.Attention{Tokens: 16, Length: 16, Heads: 2, KVHeads: 1, Dim: 64, DType: device.BF16, Backward: true}
	s, err = m.Attention(a)
	positive(t, a.String(), s, err)
	s, err = m.H2D(1<<12, measure.Registered)
	positive(t, "up", s, err)
	up, _, err := m.Both(1<<12, measure.Pinned)
	positive(t, "both", up, err)
	before, _ := drv.Registrations()
	by, err := m.Register(1<<16, []int{1, 2, 8})
	made, left := drv.Registrations()
	if len(by) != 3 || made < before+3 || left != 0 {
		t.Errorf("registering by three numbers of threads: %d times, %d registrations, %d left: %v", len(by), made-before, left, err)
	}
	for _, s := range by {
		positive(t, "registering", s, err)
	}
}

// TestOutOfMemory: work that does not fit gives a *device.OutOfMemory and leaks nothing.
func TestOutOfMemory(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1, MemoryLimit: 1 << 16}))(t)
	m := closed(t, dev)
	var oom *device.OutOfMemory
	if _, err := m.Product(measure.Product{M: 1000, N: 1000, K: 1000}); !errors.As(err, &oom) {
		t.Errorf("a product: %v", err)
	}
	if _, _, err := m.Both(40<<10, measure.Pinned); !errors.As(err, &oom) {
		t.Errorf("copies: %v", err)
	}
}

func TestHost(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	before := host.Usage()
	coded := optim.Quantised{By: optim.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, Bits: 8}
	for _, u := range []struct {
		measure.Update
		bytes int64
	}{
		{measure.Update{Params: 5000}, 5120 * 28},
		{measure.Update{Params: 5000, Split: true}, 5120 * 28},
		{measure.Update{Params: 5000, Split: true, BF16: true}, 5120 * 26},
		{measure.Update{Params: 5000, Split: true, By: coded}, 5120*16 + 2*2*512}, // scales of each moment take 512 bytes
		{measure.Update{Params: 5000, By: optim.Muon{Momentum: 0.95}}, 5120 * 28},
		{measure.Update{Params: 5000, Split: true, BF16: true, By: optim.Muon{Momentum: 0.95}}, 5120 * 22},
	} {
		update, norm, err := u.Measure(pool, once)
		positive(t, "update", update, err)
		positive(t, "norm", norm, err)
		if b := u.Bytes(); b != u.bytes {
			t.Errorf("%+v moves %d bytes, want %d", u.Update, b, u.bytes)
		}
	}
	if _, _, err := (measure.Update{Params: 10, BF16: true}).Measure(pool, once); err == nil {
		t.Error("a bf16 gradient of plain weights: no error")
	}
	s, bytes, err := measure.Gather(pool, 50, 20, 16, true, once)
	positive(t, "gather", s, err)
	if bytes != 20*16*2 {
		t.Errorf("gather moves %d bytes", bytes)
	}
	s, err = measure.Memcpy(pool, 100, once)
	positive(t, "memcpy", s, err)
	if after := host.Usage(); after.Total != before.Total {
		t.Errorf("host memory did not come back: %d, before %d", after.Total, before.Total)
	}
}

// TestDisk: the temporary file is removed after the measurement. A missing directory gives an
// error.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	write, read, err := measure.Disk(dir, 5<<20+1, measure.Options{Runs: 2})
	positive(t, "write", write, err)
	positive(t, "read", read, err)
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	if _, _, err := measure.Disk(filepath.Join(dir, "none"), 1, once); err == nil {
		t.Error("no directory: no error")
	}
}

// TestTimes: short work is repeated within a timing, slow work is timed once, and times are per repetition.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		each                time.Duration
		calls, repeats, all int // all: counted timings
	}{
		{time.Microsecond, 2 + 5, 1001, 5},
		{1100 * time.Microsecond, 2 + 5, 1, 5},
		{300 * time.Millisecond, 1 + 3, 1, 3},
		{3 * time.Second, 1, 1, 1},
	} {
		calls, last := 0, 0
		s, err := measure.Times(measure.Options{Runs: 5, Least: time.Millisecond, Most: time.Second}, func(n int) (time.Duration, error) {
			calls, last = calls+1, n
			return time.Duration(n) * c.each, nil
		})
		if c.each == 1100*time.Microsecond {
			c.calls = 1 + 5
		}
		if err != nil || calls != c.calls || last != c.repeats || s.Runs != c.all || s.Median != c.each.Seconds() {
			t.Errorf("%s: %d calls, the last of %d, %+v: %v", c.each, calls, last, s, err)
		}
	}
}

// TestMedian: the median of an even number of runs is the mean of the middle two.
func TestMedian(t *testing.T) {
	for _, c := range []struct {
		runs []time.Duration
		want float64
	}{{[]time.Duration{5, 1, 2}, 2e-9}, {[]time.Duration{8, 1, 2, 4}, 3e-9}} {
		next := -1
		s, err := measure.Times(measure.Options{Runs: len(c.runs), Least: 1, Most: time.Second}, func(int) (time.Duration, error) {
			if next++; next == 0 {
				return 1, nil // warm-up run
			}
			return c.runs[next-1], nil
		})
		if err != nil || math.Abs(s.Median-c.want) > 1e-15 || s.Least != 1e-9 || s.Runs != len(c.runs) {
			t.Errorf("%v: %+v, %v", c.runs, s, err)
		}
	}
}

// TestInPlaceShare: a CPU device, whose device memory is host memory, computes at about the same
// rate on both kinds. The measurement frees all memory.
func TestInPlaceShare(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1, Unified: true})
	testkit.NoError(t, err)
	m, err := measure.New(dev, measure.Options{Runs: 3, Least: 1})
	testkit.NoError(t, err)
	own, share, err := m.InPlace(70 * 70)
	if err != nil || own.Median <= 0 || !(share > 0) || math.IsInf(share, 1) {
		t.Errorf("%+v, %g, %v", own, share, err)
	}
	if err := errors.Join(m.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
	if n := dev.Usage().Total; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
