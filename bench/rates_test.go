package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/device"
	"mt/device/cpu"
	"mt/internal/doctor/measure"
	"mt/internal/run/machine"
	"mt/internal/testkit"
	"mt/model"
	"mt/plan/rates"
)

// table is a report that can print itself as a table.
type table interface{ WriteTable(w io.Writer) error }

// checkReport checks that a report can be printed as a table and as JSON.
func checkReport(t *testing.T, r table) {
	t.Helper()
	var text strings.Builder
	if err := r.WriteTable(&text); err != nil || text.Len() < 100 {
		t.Errorf("table: %v\n%s", err, text.String())
	}
	if _, err := json.Marshal(r); err != nil {
		t.Errorf("JSON: %v", err)
	}
	if strings.Contains(text.String(), "NaN") || strings.Contains(text.String(), "Inf") {
		t.Errorf("a figure is no number:\n%s", text.String())
	}
}

func init() { machine.CPURateSize = 64 }

var oneRun = OnDevice{Runs: 1, Most: time.Nanosecond, Threads: 2}

func sound(t *testing.T, what string, s Sample) {
	t.Helper()
	if !(s.Min > 0 && s.Min <= s.Median && s.Median <= s.Max && s.Max < 1e9) {
		t.Errorf("%s: %+v", what, s)
	}
}

// TestRateOf: the median time gives the median rate, the longest time the lowest rate, and the
// shortest the highest.
func TestRateOf(t *testing.T) {
	if got := rateOf(12, measure.Seconds{Median: 3, Least: 2, Most: 4}); got != (Sample{Median: 4, Min: 3, Max: 6}) {
		t.Errorf("%+v", got)
	}
}

func TestCopyReport(t *testing.T) {
	r := testkit.Must(Copy(t.Context(), CopyOptions{OnDevice: oneRun, Bytes: []int64{1 << 16}}))(t)
	if len(r.Rows) != 3*4+1+1+3*2+len(measure.Optimizers) || r.Device == "" {
		t.Errorf("%d rows on %q", len(r.Rows), r.Device)
	}
	for _, row := range r.Rows {
		sound(t, row.What, row.GBps)
	}
	sound(t, "launch", r.LaunchUS.Enqueue)
	checkReport(t, r)
}

// pinning is a device that takes a millisecond to pin memory. It records the numbers of threads.
type pinning struct {
	device.Device
	threads *[]int
}

func (d pinning) RegisterBy(threads int, _ ...[]byte) error {
	*d.threads = append(*d.threads, threads)
	time.Sleep(time.Millisecond)
	return nil
}

// TestRegistering: pinning is measured with each number of threads over the same number of bytes,
// and each has a row with its rate.
func TestRegistering(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	defer dev.Close()
	var threads []int
	m := testkit.Must(measure.New(pinning{dev, &threads}, measure.Options{Runs: 1, Most: time.Nanosecond}))(t)
	defer m.Close()
	r := &CopyReport{}
	testkit.NoError(t, r.registering(t.Context(), CopyOptions{Bytes: []int64{1 << 10, 1 << 16}}, m))
	if got := slices.Compact(slices.Clone(threads)); !slices.Equal(got, registerThreads) || len(r.Rows) != len(got) {
		t.Fatalf("pinned by %v threads, in %d rows", threads, len(r.Rows))
	}
	const bytes = 8 << 16 // the largest copy for each of 8 threads
	for i, row := range r.Rows {
		if row.What != fmt.Sprintf("register, %d at a time", registerThreads[i]) || row.Bytes != bytes || !(row.GBps.Max > 0 && row.GBps.Max <= bytes/1e6) {
			t.Errorf("%+v: wants %d bytes in a millisecond or more", row, bytes)
		}
	}
}

// TestRatesLeaveOut: measurements that do not fit in device memory are left out with the reason.
// The rest is measured.
func TestRatesLeaveOut(t *testing.T) {
	small := oneRun
	small.DeviceMemory = 1 << 20
	r := testkit.Must(MatMul(t.Context(), MatMulOptions{OnDevice: small, Squares: []int{64, 1024}}))(t)
	if len(r.Rows) != 3 || len(r.LeftOut) != 3 || !strings.Contains(r.LeftOut[0], "out of device memory") {
		t.Errorf("%d rows, left out %q", len(r.Rows), r.LeftOut)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "left out: square 1024") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

func TestAttentionReport(t *testing.T) {
	r := testkit.Must(Attention(t.Context(), AttentionOptions{OnDevice: oneRun, Lengths: []int{16, 48}, Dims: []int{64}, Width: 192, Tokens: 50}))(t)
	if len(r.Rows) != 4 || r.Rows[0].Tokens != 64 || r.Rows[2].Tokens != 96 || r.Rows[0].Heads != 3 || r.Rows[0].KVHeads != 1 {
		t.Errorf("%+v", r.Rows)
	}
	for _, row := range r.Rows {
		sound(t, row.Way, row.TFLOPS)
	}
	checkReport(t, r)
}

// TestMatMulReport: a model has three products for each different matrix, each measured once. The
// embedding has no product.
func TestMatMulReport(t *testing.T) {
	c := testkit.Must(model.Preset("tiny"))(t)
	r := testkit.Must(MatMul(t.Context(), MatMulOptions{OnDevice: oneRun, Model: c, Name: "tiny", Tokens: 8, Squares: []int{16}}))(t)
	if len(r.Rows) != 3*(5+1) {
		t.Errorf("%d rows: %+v", len(r.Rows), r.Rows)
	}
	gate := r.Rows[6:9]
	for i, want := range []MatMulRow{{Name: "gate_up, forward", M: 8, N: 352, K: 64, TransB: true}, {Name: "gate_up, input's gradient", M: 8, N: 64, K: 352},
		{Name: "gate_up, weight's gradient", M: 352, N: 64, K: 8, TransA: true, Accumulate: true}} {
		got := gate[i]
		sound(t, got.Name, got.TFLOPS)
		if got.OfPeak != nil {
			sound(t, got.Name, *got.OfPeak)
		}
		want.OfPeak, want.DType, want.TFLOPS, want.Runs, want.Beside = got.OfPeak, "fp32", got.TFLOPS, got.Runs, rates.Against(0, got.TFLOPS.Median)
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	checkReport(t, r)
}

// TestRatesEnd: a cancelled context ends a measurement with its error.
func TestRatesEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Copy(ctx, CopyOptions{OnDevice: oneRun}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// fails is a writer whose write number at returns an error.
type fails struct{ at, writes int }

var errFull = errors.New("no space left on device")

func (f *fails) Write(p []byte) (int, error) {
	if f.writes++; f.writes == f.at {
		return 0, errFull
	}
	return len(p), nil
}

// TestFullDisk: a write failure anywhere in a table is returned.
func TestFullDisk(t *testing.T) {
	for _, r := range []table{&SGEMMReport{}, &SGEMMReport{Peer: &SGEMMPeer{}}} {
		for at := 1; ; at++ {
			f := &fails{at: at}
			err := r.WriteTable(f)
			if f.writes < at {
				break
			}
			if !errors.Is(err, errFull) {
				t.Errorf("%T: write %d fails, and the error is %v", r, at, err)
			}
		}
	}
}

// TestSharesOfPeak: each run is compared with the mean of the peaks before and after it. The peaks beside the warm-up
// and beside earlier products do not count, and only fp32 has a share.
func TestSharesOfPeak(t *testing.T) {
	p := measure.Product{M: 1e4, N: 1e4, K: 5e3, DType: device.F32} // 10¹² FLOPs
	r := &MatMulReport{peaks: []float64{100, 100, 2, 4, 6}}
	if got := r.shares(p, measure.Sum([]float64{1, 0.5})); got == nil || math.Abs(got.Max-0.4) > 1e-15 || math.Abs(got.Min-1.0/3) > 1e-15 {
		t.Errorf("%v, want 0.33 to 0.40", got)
	}
	p.DType = device.BF16
	if got := r.shares(p, measure.Sum([]float64{1})); got != nil {
		t.Errorf("bf16: %v", got)
	}
}
