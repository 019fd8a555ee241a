package cudart

import (
	"errors"
	"testing"
	"unsafe"
)

// TestSetAttributes: DescSet, DescSetPointer and PreferenceSet pass the handle, the attribute, the
// value's address and its size to C, with the right bytes at that address.
func TestSetAttributes(t *testing.T) {
	f, c := newFake(t)
	blas := c.BlasLt()
	type setting struct {
		name         string
		handle, attr uintptr
		value        uint64
		size         uintptr
	}
	var got []setting
	for _, name := range []string{"cublasLtMatmulDescSetAttribute", "cublasLtMatmulPreferenceSetAttribute"} {
		f.on(name, func(a *[maxArguments]uintptr) uintptr {
			var v uint64
			switch a[3] {
			case 4:
				v = uint64(*memory[uint32](a[2]))
			case 8:
				v = *memory[uint64](a[2])
			}
			got = append(got, setting{name, a[0], a[1], v, a[3]})
			return 0
		})
	}
	for _, test := range []struct {
		call func() error
		want []setting
	}{
		{func() error { return blas.DescSet(2, DescTransA, int32(Transposed)) }, []setting{{"cublasLtMatmulDescSetAttribute", 2, 3, 1, 4}}},
		{func() error { return blas.DescSet(2, DescEpilogue, int32(EpilogueBias)) }, []setting{{"cublasLtMatmulDescSetAttribute", 2, 7, 4, 4}}},
		{func() error { return blas.DescSetPointer(2, DescBiasPointer, 1<<40) }, []setting{{"cublasLtMatmulDescSetAttribute", 2, 8, 1 << 40, 8}}},
		{func() error { return blas.PreferenceSet(4, PreferMaxWorkspaceBytes, 1<<33) }, []setting{{"cublasLtMatmulPreferenceSetAttribute", 4, 1, 1 << 33, 8}}},
		{func() error { return blas.PreferenceSet(4, PreferMinAlignmentD, 16) }, []setting{{"cublasLtMatmulPreferenceSetAttribute", 4, 8, 16, 4}}},
	} {
		got = nil
		if err := test.call(); err != nil || len(got) != len(test.want) {
			t.Errorf("%v: got %v, want %v", err, got, test.want)
			continue
		}
		for i, want := range test.want {
			if got[i] != want {
				t.Errorf("got %v, want %v", got[i], want)
			}
		}
	}
	f.fails("cublasLtMatmulDescSetAttribute", blasInvalidValue)
	if err := blas.DescSetPointer(2, DescBiasPointer, 1); !errors.Is(err, ErrInvalidValue) {
		t.Error(err)
	}
}

func TestAlgoGetHeuristic(t *testing.T) {
	f, c := newFake(t)
	shape := &MatmulShape{Desc: 2, A: 3, B: 4, C: 5, D: 6}
	var results []Heuristic
	f.on("cublasLtMatmulAlgoGetHeuristic", func(a *[maxArguments]uintptr) uintptr {
		if [8]uintptr(a[:8]) != [8]uintptr{1, 2, 3, 4, 5, 6, 7, 3} {
			return blasInvalidValue
		}
		copy(unsafe.Slice(memory[Heuristic](a[8]), 3), results)
		*memory[int32](a[9]) = int32(len(results))
		return 0
	})
	results = []Heuristic{
		{Algorithm: Algorithm{1, 2}, WorkspaceBytes: 10, Waves: 0.5},
		{Algorithm: Algorithm{9}, state: blasNotSupported},
		{Algorithm: Algorithm{3, 4}, WorkspaceBytes: 20, Waves: 2},
	}
	got, err := c.BlasLt().AlgoGetHeuristic(77, 1, shape, 7, 3)
	if err != nil || len(got) != 2 || got[0] != results[0] || got[1] != results[2] {
		t.Errorf("%v, %v", got, err)
	}
	results = results[1:2]
	if _, err := c.BlasLt().AlgoGetHeuristic(77, 1, shape, 7, 3); !errors.Is(err, ErrNotSupported) {
		t.Error(err)
	}
	results = nil
	if _, err := c.BlasLt().AlgoGetHeuristic(77, 1, shape, 7, 3); !errors.Is(err, ErrNotSupported) {
		t.Error(err)
	}
	if _, err := c.BlasLt().AlgoGetHeuristic(77, 1, shape, 7, 0); !errors.Is(err, ErrInvalidValue) {
		t.Error(err)
	}
}

func TestMatmul(t *testing.T) {
	f, c := newFake(t)
	shape := &MatmulShape{Desc: 2, A: 3, B: 4, C: 5, D: 6}
	args := &MatmulArgs{Alpha: 1.5, Beta: -2, A: 10, B: 11, C: 12, D: 13, Workspace: 14, WorkspaceBytes: 1 << 33}
	var scale [2]float32
	var algorithm Algorithm
	f.on("cublasLtMatmul", func(a *[maxArguments]uintptr) uintptr {
		scale = [2]float32{*memory[float32](a[2]), *memory[float32](a[7])}
		algorithm = Algorithm{}
		if a[12] != 0 {
			algorithm = *memory[Algorithm](a[12])
		}
		a[2], a[7], a[12] = 0, 0, 0
		if want := [maxArguments]uintptr{1, 2, 0, 10, 3, 11, 4, 0, 12, 5, 13, 6, 0, 14, 1 << 33, 99}; *a != want {
			return blasInvalidValue
		}
		return 0
	})
	want := Algorithm{1, 2, 3, 4, 5, 6, 7, 8}
	for _, args.Algorithm = range []*Algorithm{nil, &want} {
		if err := c.BlasLt().Matmul(77, 1, shape, args, 99); err != nil || scale != [2]float32{1.5, -2} {
			t.Errorf("%v, alpha and beta %v", err, scale)
		}
		if args.Algorithm == nil && algorithm != (Algorithm{}) || args.Algorithm != nil && algorithm != want {
			t.Errorf("algorithm %v", algorithm)
		}
	}
	f.fails("cublasLtMatmul", blasAllocFailed)
	if err := c.BlasLt().Matmul(77, 1, shape, args, 99); !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
}

func TestBlasVersion(t *testing.T) {
	f, c := newFake(t)
	f.fails("cublasLtGetVersion", 120402)
	if v := c.BlasLt().Version(); v != 120402 {
		t.Error(v)
	}
}
