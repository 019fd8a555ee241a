package emu_test

import (
	"errors"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// TestHang: work that hangs blocks its own stream and the streams that wait for it, but no other.
// EndHang ends it, with success or with an error.
func TestHang(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		for _, code := range []int{0, 719} {
			o.Hang = "set of 64"
			r := open(t, o)
			hung, free := r.stream(), r.stream()
			a, b := r.malloc(64), r.malloc(128)
			before, after, other := r.event(), r.event(), r.event()
			r.must(r.MemsetAsync(b, 1, 32, hung))
			r.must(r.EventRecord(before, hung))
			r.must(r.MemsetAsync(a, 1, 64, hung))
			r.must(r.EventRecord(after, hung))
			r.must(r.StreamWaitEvent(free, before))
			r.must(r.MemsetAsync(b, 2, 128, free))
			r.must(r.EventRecord(other, free))
			r.must(r.EventSynchronize(other)) // returns eventually
			for _, e := range []struct {
				event cudart.Event
				want  bool
			}{{before, true}, {other, true}, {after, false}} {
				if done, err := r.EventQuery(e.event); done != e.want || err != nil {
					t.Errorf("an event is complete: %v, %v", done, err)
				}
			}
			r.d.EndHang(code)
			err := r.StreamSynchronize(hung)
			done, query := r.EventQuery(after)
			if lost := code != 0; errors.Is(err, cudart.ErrContextLost) != lost || errors.Is(query, cudart.ErrContextLost) != lost || done == lost {
				t.Errorf("code %d: %v, then %v, %v", code, err, done, query)
			}
			_ = r.d.Close()
		}
	})
}
