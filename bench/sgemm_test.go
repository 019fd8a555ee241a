package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"mt/device/cpu/gemm"
	"mt/device/cpu/openblas"
	"mt/internal/testkit"
)

// quick returns options with which the benchmark takes almost no time.
func quick() SGEMMOptions {
	return SGEMMOptions{
		Threads: 2, Rounds: 2, Sample: time.Nanosecond, Rest: time.Nanosecond,
		Shapes: []SGEMMShape{
			{Name: "x", M: 4, N: 5, K: 6},
			{Name: "y", M: 4, N: 5, K: 6, TransA: true, TransB: true, Accumulate: true},
		},
	}
}

func TestSGEMM(t *testing.T) {
	r := testkit.Must(SGEMM(t.Context(), quick()))(t)
	if len(r.Rows) != 2 || r.Threads != 2 {
		t.Fatalf("%d rows on %d threads, want 2 on 2", len(r.Rows), r.Threads)
	}
	for _, row := range r.Rows {
		if !(row.Ours.Min > 0 && row.Ours.Min <= row.Ours.Median && row.Ours.Median <= row.Ours.Max) {
			t.Errorf("%s: GFLOP/s %v", row.Name, row.Ours)
		}
		if (row.Ratio != nil) != (r.Peer != nil) {
			t.Errorf("%s: ratio %v with peer %v", row.Name, row.Ratio, r.Peer)
		}
		if (row.OfPeak != nil) != (gemm.PeakFLOPS(1) > 0) || (row.PeerOfPeak != nil) != (row.OfPeak != nil && r.Peer != nil) {
			t.Errorf("%s: shares of the peak %v and %v with peer %v", row.Name, row.OfPeak, row.PeerOfPeak, r.Peer)
		}
	}
	if (r.Peer == nil) != strings.Contains(r.NoPeer, openblas.Variable) {
		t.Errorf("peer %v, but the report says %q", r.Peer, r.NoPeer)
	}
	var table bytes.Buffer
	testkit.NoError(t, r.WriteTable(&table))
	if !strings.Contains(table.String(), "Aᵀ·Bᵀ + D") {
		t.Errorf("the table lacks a row:\n%s", &table)
	}
	if raw, err := json.Marshal(r); err != nil || !bytes.Contains(raw, []byte(`"trans_a":true`)) {
		t.Errorf("error %v, JSON %s", err, raw)
	}
}

func TestSGEMMNamesALibraryItCannotLoad(t *testing.T) {
	t.Setenv(openblas.Variable, "/nowhere/lib.so")
	if _, err := SGEMM(t.Context(), quick()); err == nil || !strings.Contains(err.Error(), "/nowhere/lib.so") {
		t.Errorf("error %v, want one that names the library", err)
	}
}

func TestSGEMMShapes(t *testing.T) {
	shapes := SGEMMShapes()
	seen := map[SGEMMShape]bool{}
	for _, s := range shapes {
		if seen[s] || min(s.M, s.N, s.K) < 256 {
			t.Errorf("%+v is there twice, or small", s)
		}
		seen[s] = true
	}
}
