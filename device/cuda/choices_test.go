package cuda

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/cudart/emu"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
)

// terms is the number of terms in each sum of the products here. Each algorithm of the emulated
// cuBLASLt splits a sum into another number of parts, so the rounding of a result shows which
// algorithm computed it.
const terms = 96

func term(i int) (a, b float32) { return 1000 * float32(math.Sin(float64(i*i))), 1 }

func sumIn(parts int) float32 {
	var all float32
	for p := range parts {
		var part float32
		for i := p * terms / parts; i < (p+1)*terms/parts; i++ {
			a, b := term(i)
			part += float32(a * b)
		}
		all += part
	}
	return all
}

// dot computes on a stream of d the product of a row and a column of terms numbers, and returns it.
// With accumulate the product is added to c.
func dot(t *testing.T, d *dev, accumulate bool, c float32) float32 {
	t.Helper()
	s := newStream(t, d, "s")
	x := alloc(t, d, 4096)
	up := testkit.Must(d.AllocHost(4096))(t)
	defer d.FreeHost(up)
	for i := range terms {
		a, b := term(i)
		binary.LittleEndian.PutUint32(up[4*i:], math.Float32bits(a))
		binary.LittleEndian.PutUint32(up[1024+4*i:], math.Float32bits(b))
	}
	binary.LittleEndian.PutUint32(up[2048:], math.Float32bits(c))
	s.CopyH2D(x, up)
	m := op.MatMul{M: 1, N: 1, K: terms, A: x.Tensor(device.F32, 0, terms), B: x.Tensor(device.F32, 1024, terms), D: x.Tensor(device.F32, 2048, 1)}
	if accumulate {
		m.C = m.D
	}
	op.Do(d, s, m)
	s.CopyD2H(up, x)
	testkit.NoError(t, s.Sync())
	return math.Float32frombits(binary.LittleEndian.Uint32(up[2048:]))
}

// shelf is a Store in memory. note and err are returned by its methods.
type shelf struct {
	kept map[Platform]map[string][8]uint64
	note string
	err  error
}

func (s *shelf) Load(p Platform) (map[string][8]uint64, string) { return s.kept[p], s.note }

func (s *shelf) Keep(p Platform, shape string, words [8]uint64) error {
	if s.kept == nil {
		s.kept = map[Platform]map[string][8]uint64{}
	}
	if s.kept[p] == nil {
		s.kept[p] = map[string][8]uint64{}
	}
	s.kept[p][shape] = words
	return s.err
}

// hours returns options in which the emulated GPU takes h[i] hours for a product with the i-th
// proposed algorithm. Its events report these times alone.
func hours(h ...int) emu.Options {
	var o emu.Options
	for _, n := range h {
		o.ProductTimes = append(o.ProductTimes, time.Duration(n)*time.Hour)
	}
	return o
}

func calls(drv *emu.Driver, name string) (n int) {
	for i := 1; drv.CallName(i) != ""; i++ {
		if drv.CallName(i) == name {
			n++
		}
	}
	return n
}

// TestTimedChoice: with timing, the algorithm with the least time computes a shape. Each proposal
// runs a few times at the shape's first use, and these runs do not change the result. Without
// timing, the first proposal computes it.
func TestTimedChoice(t *testing.T) {
	for _, tc := range []struct {
		hours []int
		timed bool
		parts int
	}{
		{[]int{3, 2, 1, 2}, true, 3}, {[]int{1, 2, 3}, true, 1}, {[]int{2, 1, 3}, true, 2}, {[]int{2, 2, 2}, true, 1}, {[]int{2, 1, 3}, false, 1},
		{[]int{9, 9, 9, 9, 9, 9, 9, 8, 1}, true, 8}, // only eight are considered
		{[]int{5}, true, 1},
	} {
		d, drv := newDevice(t, hours(tc.hours...), Options{Choices: NewChoices(tc.timed, nil)})
		for range 2 {
			if got, want := dot(t, d, false, 5), sumIn(tc.parts); got != want {
				t.Errorf("%+v: %v, want %v", tc, got, want)
			}
			if got, want := dot(t, d, true, 5), sumIn(tc.parts)+5; got != want {
				t.Errorf("%+v: with C %v, want %v", tc, got, want)
			}
		}
		runs := 4
		if n := min(len(tc.hours), mostProposals); tc.timed && n > 1 {
			runs += 2 * n * (1 + timings)
		}
		if got := calls(drv, "cublasLtMatmul"); got != runs {
			t.Errorf("%+v: %d products, want %d", tc, got, runs)
		}
	}
	if s := []float32{sumIn(1), sumIn(2), sumIn(3), sumIn(8)}; len(slices.Compact(slices.Sorted(slices.Values(s)))) != len(s) {
		t.Fatalf("the sums do not differ: %v", s)
	}
}

// TestKeptChoices: a timed choice is stored for its platform. The next device of this platform uses
// the stored choice, even if its own timing would choose otherwise. A stored algorithm that
// cuBLASLt does not propose any more is replaced by timing again.
func TestKeptChoices(t *testing.T) {
	kept := &shelf{}
	first, _ := newDevice(t, hours(2, 3, 1), Options{Choices: NewChoices(true, kept)})
	dot(t, first, false, 0)
	on := Platform{Device: "Emulated GPU", Driver: 12080, CuBLASLt: 120804}
	shape := "1x1x96 NN fp32->fp32 align [256 256 0 256 0]"
	if len(kept.kept) != 1 || len(kept.kept[on]) != 1 || kept.kept[on][shape] == [8]uint64{} {
		t.Fatalf("kept: %v", kept.kept)
	}
	for name, tc := range map[string]struct {
		o     emu.Options
		parts int
	}{"same": {hours(1, 2, 3), 3}, "other driver": {func() emu.Options { o := hours(1, 2, 3); o.DriverVersion = 12040; return o }(), 1},
		"other device": {func() emu.Options { o := hours(1, 2, 3); o.Name = "Another"; return o }(), 1}, "not proposed": {hours(2, 1), 2}} {
		had := &shelf{kept: map[Platform]map[string][8]uint64{on: maps.Clone(kept.kept[on])}} // what is timed again is kept too
		next, _ := newDevice(t, tc.o, Options{Choices: NewChoices(true, had)})
		if got, want := dot(t, next, false, 0), sumIn(tc.parts); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	untimed, _ := newDevice(t, hours(2, 1, 3), Options{Choices: NewChoices(false, kept)})
	if got := dot(t, untimed, false, 0); got != sumIn(1) {
		t.Errorf("without timing the store is asked: %v", got)
	}
}

// TestRefusedWhileTimed: if cuBLASLt refuses every algorithm that it has proposed, no choice is
// stored, and mt's own kernel computes the product.
func TestRefusedWhileTimed(t *testing.T) {
	kept, o := &shelf{}, hours(2, 1)
	o.RefuseProducts = 15
	d, _ := newDevice(t, o, Options{Choices: NewChoices(true, kept)})
	if got := float64(dot(t, d, false, 0)); math.Abs(got-float64(sumIn(1))) > 1 || len(kept.kept) > 0 {
		t.Errorf("%v, and %v is kept", got, kept.kept)
	}
}

// TestNotesOfTheStore: if the store skips a choice or cannot store one, the user gets a note. The
// product is computed all the same.
func TestNotesOfTheStore(t *testing.T) {
	d, _ := newDevice(t, hours(2, 1), Options{Choices: NewChoices(true, &shelf{note: "passed over", err: errors.New("the disk is full")})})
	if got := dot(t, d, false, 0); got != sumIn(2) {
		t.Errorf("%v", got)
	}
	if n := d.Notes(); len(n) != 2 || n[0] != "passed over" || !strings.Contains(n[1], "the disk is full") {
		t.Errorf("notes %q", n)
	}
}

// TestResumedChoices: a resumed run uses the algorithms that it has recorded, with or without
// timing, whatever the store has. The exception is an algorithm that cuBLASLt does not propose any
// more.
func TestResumedChoices(t *testing.T) {
	record := func(o emu.Options) map[string][8]uint64 {
		d, _ := newDevice(t, o, Options{Choices: NewChoices(true, nil)})
		dot(t, d, false, 0)
		out := map[string][8]uint64{}
		for _, a := range d.Algorithms() {
			out[a.Shape] = a.Words
		}
		return out
	}
	recorded, kept := record(hours(2, 2, 1)), &shelf{}
	for shape, words := range record(hours(2, 1, 2)) {
		_ = kept.Keep(Platform{Device: "Emulated GPU", Driver: 12080, CuBLASLt: 120804}, shape, words)
	}
	for _, timed := range []bool{false, true} {
		d, _ := newDevice(t, hours(1, 2, 3), Options{Choices: NewChoices(timed, kept)})
		d.ResumeAlgorithms(recorded)
		if got := dot(t, d, false, 0); got != sumIn(3) {
			t.Errorf("timed %v: %v, want %v", timed, got, sumIn(3))
		}
		other, _ := newDevice(t, hours(1, 2), Options{Choices: NewChoices(timed, nil)})
		other.ResumeAlgorithms(recorded)
		if got := dot(t, other, false, 0); got != sumIn(1) {
			t.Errorf("timed %v, not proposed any more: %v, want %v", timed, got, sumIn(1))
		}
	}
}

// TestSharedChoices: two devices with the same Choices use the same algorithm for a shape. Only the
// device that needs the shape first times it.
func TestSharedChoices(t *testing.T) {
	o := hours(2, 1, 3)
	o.Devices = 2
	drv, c := bind(t, o)
	choices := NewChoices(true, nil)
	for i := range 2 {
		opened := testkit.Must(New(Options{CUDA: c, Ordinal: i, Choices: choices}))(t)
		d := opened.(*dev)
		testkit.Close(t, d)
		if got := dot(t, d, false, 0); got != sumIn(2) {
			t.Errorf("device %d: %v, want %v", i, got, sumIn(2))
		}
	}
	if got, want := calls(drv, "cublasLtMatmul"), 2+3*(1+timings); got != want {
		t.Errorf("%d products, want %d", got, want)
	}
}

// TestTimedOnce: with timing, all row counts between two powers of two count as one shape and are
// timed once. An exact power of two counts as another shape.
func TestTimedOnce(t *testing.T) {
	d, drv := newDevice(t, hours(2, 1), Options{Choices: NewChoices(true, nil)})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<16)
	s.Zero(x)
	at := func(off int64) device.Tensor { return x.Tensor(device.F32, off, 64*64) }
	n := 0
	for _, trans := range []bool{false, true} {
		for rows := 33; rows <= 64; rows++ {
			m := op.MatMul{M: rows, N: 8, K: 8, A: at(0), B: at(1 << 14), D: at(1 << 15)}
			if trans {
				m.M, m.K, m.TransA = 8, rows, true
			}
			op.Do(d, s, m)
			n++
		}
	}
	testkit.NoError(t, s.Sync())
	var shapes []string
	for _, a := range d.Algorithms() {
		shapes = append(shapes, a.Shape)
	}
	want := []string{"64x8x8 NN fp32->fp32 align [256 256 0 256 0]", "8x8x64 TN fp32->fp32 align [256 256 0 256 0]",
		"8x8x<=64 TN fp32->fp32 align [256 256 0 256 0]", "<=64x8x8 NN fp32->fp32 align [256 256 0 256 0]"}
	if !slices.Equal(shapes, want) {
		t.Errorf("shapes %q, want %q", shapes, want)
	}
	if got, want := calls(drv, "cublasLtMatmul"), n+4*2*(1+timings); got != want {
		t.Errorf("%d products, want %d", got, want)
	}
}
