package layers

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cpu"
	"mt/internal/testkit"
)

// TestNewtonSchulz: in fp32 the result is within 1e-5 of float64, relative to its largest element.
// In bf16 it is compared with a float64 computation that rounds at the same points. Another order
// of sums may round to the other neighbour, and later steps then differ by a few hundredths of the
// largest element. Over all elements the difference is less than one in a hundred of the norm.
func TestNewtonSchulz(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 2}))(t)
	defer dev.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	var most [2]float64 // in fp32 of the largest element, in bf16 of the norm
	for _, sh := range [][3]int{{1, 1, 5}, {1, 40, 5}, {40, 1, 5}, {24, 24, 5}, {16, 72, 5}, {72, 16, 5}, {130, 40, 3}, {33, 65, 0}} {
		for _, dt := range []device.DType{device.F32, device.BF16} {
			rows, cols, steps := sh[0], sh[1], sh[2]
			x := make([]float64, rows*cols)
			for i := range x {
				x[i] = float64(float32(7 * rng.NormFloat64()))
			}
			got := runNewtonSchulz(t, dev, dt, x, rows, cols, steps)
			want := append([]float64(nil), x...)
			round := func(v float64) float64 { return v }
			if dt == device.BF16 {
				round = func(v float64) float64 { return float64(bf16.Widen(bf16.Round(float32(v)))) }
			}
			oracle.NewtonSchulz(want, rows, cols, steps, 1e-7, round)
			var off, all, worst, largest float64
			for i, w := range want {
				off, all = off+(got[i]-w)*(got[i]-w), all+w*w
				worst, largest = max(worst, math.Abs(got[i]-w)), max(largest, math.Abs(w))
			}
			off = math.Sqrt(off / all)
			if dt == device.F32 {
				most[0] = max(most[0], worst/largest)
			} else {
				most[1] = max(most[1], off)
			}
			if dt == device.F32 && !(worst <= 1e-5*largest) || !(off <= 1e-2) {
				t.Errorf("%v %s: the error is %.3g of the norm, %.3g of the largest element", sh, dt, off, worst/largest)
			}
		}
	}
	// tools/parity.sh prints these lines in its table of comparisons with other programs.
	t.Logf("parity| Newton-Schulz in fp32 | the same in float64 | %.1e of the largest | 1.0e-05 |", most[0])
	t.Logf("parity| Newton-Schulz in bf16 | a twin that rounds where it does | %.1e of the norm | 1.0e-02 |", most[1])
}

// TestNewtonSchulzIsTorchs: in bf16 the result equals a recording of torch.optim.Muon, except where another order of
// sums rounds to the other neighbour.
func TestNewtonSchulzIsTorchs(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 2}))(t)
	defer dev.Close()
	b := testkit.Must(os.ReadFile("../host/optim/testdata/muon.json"))(t)
	var rec struct {
		Torch string
		Cases []struct {
			Rows, Cols int
			Options    struct {
				Steps int `json:"ns_steps"`
			}
			U, O []byte
		}
	}
	testkit.NoError(t, json.Unmarshal(b, &rec))
	for i, c := range rec.Cases {
		n := c.Rows * c.Cols
		var off, all float64
		for at := 0; at < len(c.U)/2; at += n {
			number := func(bits []byte, i int) float64 {
				return float64(bf16.Widen(binary.LittleEndian.Uint16(bits[2*(at+i):])))
			}
			x := make([]float64, n)
			for i := range x {
				x[i] = number(c.U, i)
			}
			for i, got := range runNewtonSchulz(t, dev, device.BF16, x, c.Rows, c.Cols, cmp.Or(c.Options.Steps, 5)) {
				want := number(c.O, i)
				off, all = off+(got-want)*(got-want), all+want*want
			}
		}
		if off = math.Sqrt(off / all); !(off <= 1e-3) {
			t.Errorf("case %d: the error is %.3g of the norm", i, off)
		}
		t.Logf("parity| Newton-Schulz in bf16, %d × %d | torch %s `Muon`'s | %.1e of the norm | 1.0e-03 |", c.Rows, c.Cols, rec.Torch, off)
	}
}

// runNewtonSchulz runs NewtonSchulz on the matrix x, rounded to type dt, and returns the result.
func runNewtonSchulz(t *testing.T, dev device.Device, dt device.DType, x []float64, rows, cols, steps int) []float64 {
	t.Helper()
	s := testkit.Must(dev.NewStream("test"))(t)
	defer s.Close()
	var taken []device.Mem
	defer func() {
		for _, m := range taken {
			dev.Free(m)
		}
	}()
	mem := func(bytes int64) device.Mem {
		m := testkit.Must(dev.Alloc(accounts.Workspace, bytes))(t)
		taken = append(taken, m)
		return m
	}
	bits := make([]byte, int64(len(x))*dt.Size())
	for i, v := range x {
		if dt == device.BF16 {
			binary.LittleEndian.PutUint16(bits[2*i:], bf16.Round(float32(v)))
		} else {
			binary.LittleEndian.PutUint32(bits[4*i:], math.Float32bits(float32(v)))
		}
	}
	m := mem(int64(len(bits)))
	s.CopyH2D(m, bits)
	NewtonSchulz(dev, s, m.Tensor(dt, 0, int64(len(x))), rows, cols, steps, mem(NewtonSchulzBytes(dt, rows, cols)))
	s.CopyD2H(bits, m)
	testkit.NoError(t, s.Sync())
	out := make([]float64, len(x))
	for i := range out {
		if dt == device.BF16 {
			out[i] = float64(bf16.Widen(binary.LittleEndian.Uint16(bits[2*i:])))
		} else {
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(bits[4*i:])))
		}
	}
	return out
}
