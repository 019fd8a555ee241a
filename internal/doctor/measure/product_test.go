package measure_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/device/wrap"
	"mt/internal/doctor/measure"
	"mt/internal/testkit"
)

// noting is a device that counts operations by name. It returns an error for the stream whose
// number, counted from 1, is fails.
type noting struct {
	device.Device
	names       map[string]int
	made, fails int
}

var errLacking = errors.New("there is no more")

func (n *noting) Do(s device.Stream, o device.Op) { n.names[o.Name()]++; n.Device.Do(s, o) }

func (n *noting) NewStream(name string) (device.Stream, error) {
	if n.made++; n.made == n.fails {
		return nil, errLacking
	}
	return n.Device.NewStream(name)
}

// nothing is 1 ns in seconds: the time that a meter returns if no time passes between two events.
// Measured work takes longer.
const nothing = 1e-9

// TestWhatIsTimed: the backward of attention is timed without a forward, each timing is a separate
// run, and a product of 1 × 1 × 1 can be measured.
func TestWhatIsTimed(t *testing.T) {
	inner, err := cpu.New(cpu.Options{Threads: 1})
	testkit.NoError(t, err)
	dev := &noting{Device: inner, names: map[string]int{}}
	m, err := measure.New(dev, measure.Options{Runs: 2, Least: 1, Most: time.Minute})
	testkit.NoError(t, err)
	_, err = m.Attention(measure.Attention{Tokens: 4, Length: 4, Heads: 1, KVHeads: 1, Dim: 8, DType: device.F32, Backward: true})
	if forward, backward := dev.names[(&op.Attention{}).Name()], dev.names[(&op.AttentionBackward{}).Name()]; err != nil || forward != 1 || backward < 3 {
		t.Errorf("%d forwards and %d backwards, %v", forward, backward, err)
	}
	if s, err := m.Product(measure.Product{M: 1, N: 1, K: 1, DType: device.F32}); err != nil || s.Runs != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := m.Launch(); err != nil || l.Enqueue.Runs != 2 || l.Stream.Runs != 2 || l.RoundTrip.Runs != 2 || l.Stream.Least < nothing {
		t.Errorf("%+v, %v", l, err)
	}
	up, down, err := m.Both(1<<16, measure.Pinned)
	if err != nil || up.Runs != 2 || down.Runs != 2 || min(up.Least, down.Least) < 2*nothing {
		t.Errorf("%+v, %+v, %v", up, down, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for _, fails := range []int{1, 2} {
		if _, err := measure.New(&noting{Device: inner, fails: fails}, once); !errors.Is(err, errLacking) {
			t.Errorf("without stream %d: %v", fails, err)
		}
	}
	if err := inner.Close(); err != nil {
		t.Error(err)
	}
}

// TestProductInWords: a product's text names its transposes, and Bytes covers its three matrices.
func TestProductInWords(t *testing.T) {
	p := measure.Product{M: 2, N: 3, K: 5, DType: device.BF16}
	for want, trans := range map[string][2]bool{"2×3×5 AB bf16": {}, "2×3×5 ABᵀ bf16": {false, true}, "2×3×5 AᵀB bf16": {true, false}, "2×3×5 AᵀBᵀ bf16": {true, true}} {
		if p.TransA, p.TransB = trans[0], trans[1]; p.String() != want {
			t.Errorf("%s, want %s", p, want)
		}
	}
	for accumulate, size := range map[bool]int64{false: 2, true: 4} {
		p.Accumulate = accumulate
		if got, want := p.Bytes(), 2*(10+15)+size*6+3*device.Align; got != want {
			t.Errorf("accumulate %t: %d bytes, want %d", accumulate, got, want)
		}
	}
	if _, _, err := measure.Disk(t.TempDir(), 0, once); err == nil {
		t.Error("a file of no bytes is measured")
	}
}

// TestCallsOfCopies: copies to the host make as many device calls as copies to the device. An error
// of any call ends the measurement.
func TestCallsOfCopies(t *testing.T) {
	inner := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	calls := func(failAt int64, copies func(m *measure.Meter) (measure.Seconds, error)) (int64, error) {
		dev := wrap.Fail(inner, failAt)
		m, err := measure.New(dev, once)
		if err != nil {
			return dev.Calls(), err
		}
		_, err = copies(m)
		return dev.Calls(), errors.Join(err, m.Close())
	}
	up := func(m *measure.Meter) (measure.Seconds, error) { return m.H2D(64, measure.Pinned) }
	down := func(m *measure.Meter) (measure.Seconds, error) { return m.D2H(64, measure.Pinned) }
	want := testkit.Must(calls(0, up))(t)
	if got, err := calls(0, down); err != nil || got != want {
		t.Errorf("%d calls down, %d up, %v", got, want, err)
	}
	for at := range want {
		var failed *wrap.Fault
		if _, err := calls(at+1, down); !errors.As(err, &failed) || failed.Call != at+1 {
			t.Errorf("call %d of %d fails: %v", at+1, want, err)
		}
	}
	if err := inner.Close(); err != nil {
		t.Error(err)
	}
}

// TestOptions: given fields stay, and the others get their defaults.
func TestOptions(t *testing.T) {
	for given, want := range map[measure.Options]measure.Options{
		{}:                            {Runs: 5, Least: 2 * time.Millisecond, Most: 2 * time.Second},
		{Runs: 1, Least: 7, Most: 11}: {Runs: 1, Least: 7, Most: 11},
	} {
		if got := measure.Filled(given); got != want {
			t.Errorf("%+v is filled to %+v, want %+v", given, got, want)
		}
	}
}

// TestDiskOnce: the whole file is written, and a write error is returned.
func TestDiskOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	f, err := os.Create(name)
	testkit.NoError(t, err)
	block := []byte("what is written")
	if _, _, err := measure.DiskOnce(f, slices.Clone(block), int64(len(block))); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(name); string(got) != string(block) || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
	testkit.NoError(t, f.Close())
	if f, err = os.Open(name); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := measure.DiskOnce(f, block, int64(len(block))); err == nil {
		t.Error("a file that is open for reading is written")
	}
}

// TestPermuted: the result is a permutation, whatever prime divides the number of rows.
func TestPermuted(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 7919, 2 * 7919, 3 * 7919} {
		seen := make([]bool, n)
		for i := range n {
			seen[int(measure.Permuted(n)(i))] = true
		}
		if slices.Contains(seen, false) {
			t.Errorf("of %d rows some have no place", n)
		}
	}
}

// TestBytesOfSinks: an attention-sink operation counts as reading and writing attention outputs of
// Rows × Cols elements, and two numbers per head.
func TestBytesOfSinks(t *testing.T) {
	m := meter(t)
	for _, o := range []measure.Operation{{Rows: 6, Cols: 256, DType: device.BF16}, {Rows: 6, Cols: 64, DType: device.F32}} {
		o.Name = "Sinks"
		want := 2*int64(o.Rows*o.Cols)*o.DType.Size() + 8*int64(o.Rows*max(1, o.Cols/128))
		if _, got, err := m.Operation(o); err != nil || got != want {
			t.Errorf("%s moves %d bytes, want %d: %v", o, got, want, err)
		}
	}
}
