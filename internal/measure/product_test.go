package measure_test

import (
	"errors"
	"testing"
	"time"

	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/internal/measure"
)

// noting notes the names of operations. The stream of number fails, from 1, cannot be made.
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

// TestWhatIsTimed: a backward of attention is one, each timing is a run of its own, and a product of 1 × 1 × 1 is one.
func TestWhatIsTimed(t *testing.T) {
	inner, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	dev := &noting{Device: inner, names: map[string]int{}}
	m, err := measure.New(dev, measure.Options{Runs: 2, Least: 1, Most: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Attention(measure.Attention{Tokens: 4, Length: 4, Heads: 1, KVHeads: 1, Dim: 8, DType: device.F32, Backward: true})
	if forward, backward := dev.names[(&op.Attention{}).Name()], dev.names[(&op.AttentionBackward{}).Name()]; err != nil || forward != 1 || backward < 3 {
		t.Errorf("%d forwards and %d backwards, %v", forward, backward, err)
	}
	if s, err := m.Product(measure.Product{M: 1, N: 1, K: 1, DType: device.F32}); err != nil || s.Runs != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := m.Launch(); err != nil || l.Enqueue.Runs != 2 || l.Stream.Runs != 2 || l.RoundTrip.Runs != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	up, down, err := m.Both(64, measure.Pinned)
	if err != nil || up.Runs != 2 || down.Runs != 2 {
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

// TestProductInWords: the text names what is transposed, and memory has room for all three matrices.
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
