package wrap_test

import (
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cpu"
	"mt/device/op"
	"mt/device/wrap"
	"mt/internal/testkit"
)

// TestOps: operations give the same bits with and without Profile.
func TestOps(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	p := wrap.Profile(dev)
	defer p.Close()
	first := conformance.OneIn(0)
	want := conformance.SomeOperations(t, dev, first)
	got := conformance.SomeOperations(t, p, first)
	if len(want) != 2*len(conformance.OperationNames()) {
		t.Errorf("%d cases of %d operations", len(want), len(conformance.OperationNames()))
	}
	for name, hash := range want {
		if got[name] != hash {
			t.Errorf("%s: other bits with the profile", name)
		}
	}
}

// TestTimes: Times counts every call of an operation once, with its FLOPs.
func TestTimes(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	p := wrap.Profile(dev)
	defer p.Close()
	s := testkit.Must(p.NewStream("compute"))(t)
	defer s.Close()
	mem := testkit.Must(p.Alloc(accounts.Workspace, 3*4*64))(t)
	defer p.Free(mem)
	s.Zero(mem)
	a, b, c := mem.Tensor(device.F32, 0, 64), mem.Tensor(device.F32, 256, 64), mem.Tensor(device.F32, 512, 64)
	for range 3 {
		op.Do(p, s, op.MatMul{M: 8, N: 8, K: 8, TransB: true, A: a, B: b, D: c})
	}
	for rows := 1; rows <= 8; rows++ {
		op.Do(p, s, op.MatMul{M: rows, N: 8, K: 8, A: a, B: b, D: c, Ragged: true})
		op.Do(p, s, op.MatMul{M: 8, N: 8, K: rows, TransA: true, A: a, B: b, D: c, Ragged: true})
	}
	op.Do(p, s, op.Convert{Dst: c, Src: a, N: 64})
	testkit.NoError(t, s.Sync())
	type sum struct {
		calls int
		flops float64
	}
	const row = 2 * 8 * 8
	for round, want := range []map[string]sum{{
		"MatMul 8×8×8 ABᵀ": {3, 3 * 8 * row}, "Convert ": {1, 0},
		"MatMul ≤1×8×8 AB": {1, row}, "MatMul ≤2×8×8 AB": {1, 2 * row}, "MatMul ≤4×8×8 AB": {2, 7 * row}, "MatMul ≤8×8×8 AB": {4, 26 * row},
		"MatMul 8×8×≤1 AᵀB": {1, row}, "MatMul 8×8×≤2 AᵀB": {1, 2 * row}, "MatMul 8×8×≤4 AᵀB": {2, 7 * row}, "MatMul 8×8×≤8 AᵀB": {4, 26 * row},
	}, {}} {
		times := testkit.Must(p.Times())(t)
		if len(times) != len(want) {
			t.Errorf("round %d: %d kinds of calls, want %d", round, len(times), len(want))
		}
		for _, x := range times {
			if sum := want[x.Op+" "+x.Shape]; sum.calls != x.Calls || sum.flops != x.FLOPs {
				t.Errorf("%+v: want %d calls of %v FLOPs", x, sum.calls, sum.flops)
			}
		}
	}
}
