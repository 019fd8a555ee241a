package emu_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// program is a small correct CUDA program. It releases everything even after a failure, and returns
// the first error.
func program(r *rig) (first error) {
	keep := func(err error) bool {
		if first == nil {
			first = err
		}
		return err == nil
	}
	ctx, err := r.PrimaryContext(0)
	if !keep(err) {
		return first
	}
	r.ctx = ctx
	defer func() { keep(r.ReleasePrimaryContext(0)) }()
	m, err := r.ModuleLoad(ctx, []byte(tinyPTX))
	if !keep(err) {
		return first
	}
	f, err := r.ModuleFunction(ctx, m, "store")
	if !keep(err) {
		return first
	}
	a, err := r.Malloc(256)
	if !keep(err) {
		return first
	}
	defer func() { keep(r.Free(a)) }()
	s, err := r.StreamCreate()
	if !keep(err) {
		return first
	}
	defer func() { keep(r.StreamDestroy(s)) }()
	e, err := r.EventCreate(cudart.EventDisableTiming)
	if !keep(err) {
		return first
	}
	defer func() { keep(r.EventDestroy(e)) }()
	b, err := r.HostAlloc(256)
	if !keep(err) {
		return first
	}
	defer func() { keep(r.FreeHost(b)) }()
	h, err := r.BlasLt().Create(ctx)
	if !keep(err) {
		return first
	}
	defer func() { keep(r.BlasLt().Destroy(ctx, h)) }()
	defer func() { keep(r.StreamSynchronize(s)) }()
	params := make([]byte, 12)
	binary.LittleEndian.PutUint64(params, uint64(a))
	one := [3]uint32{1, 1, 1}
	if keep(r.MemsetAsync(a, 1, 256, s)) && keep(r.LaunchKernel(ctx, f, one, one, 0, s, params)) &&
		keep(r.MemcpyAsync(addr(b), uintptr(a), 256, cudart.DeviceToHost, s)) {
		keep(r.EventRecord(e, s))
	}
	keep(r.EventSynchronize(e))
	if first == nil && (b[255] != 1 || b[0] != 1 || b[1] != 0) {
		first = errors.New("the bytes did not arrive")
	}
	return first
}

// TestEachCallFailsOnce: each C call of the program fails in turn, with the requested code. The
// program gets this error, nothing leaks, and the emulator records no fault.
func TestEachCallFailsOnce(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		o.FailCode = 2
		codes := map[cudart.Library]int{cudart.Runtime: 2, cudart.Driver: 2, cudart.BlasLt: 14}
		for i := 1; ; i++ {
			if i > 100 {
				t.Fatal("the program never succeeds")
			}
			o.FailCall = i
			r := open(t, o)
			err := program(r)
			name := r.d.CallName(i)
			calls := r.d.Calls()
			r.close()
			if err == nil {
				if calls >= i {
					t.Errorf("call %d, %s, failed and the program did not notice", i, name)
				}
				break
			}
			var e *cudart.Error
			if !errors.As(err, &e) || e.Code != codes[e.Library] || e.Op != name {
				t.Errorf("call %d, %s, was to fail: %v", i, name, err)
			}
		}
	})
}

// TestDeviceIsLostAtEachCall: if the device is lost at any call of the program, that call and all
// later ones fail. Nothing hangs, and objects that the program releases count as released.
func TestDeviceIsLostAtEachCall(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		o.LostCode = 700
		for i := 1; ; i++ {
			o.LoseDeviceAt = i
			r := open(t, o)
			err := program(r)
			done := r.d.Calls() < i
			if !done {
				if _, err := r.DeviceCount(); err == nil {
					t.Error("a lost device answers")
				}
			}
			r.close()
			if done {
				if err != nil {
					t.Errorf("without a loss: %v", err)
				}
				break
			}
			var e *cudart.Error
			if blas := errors.As(err, &e) && e.Library == cudart.BlasLt; !blas && !errors.Is(err, cudart.ErrContextLost) {
				t.Errorf("lost at call %d: %v", i, err)
			}
		}
	})
}
