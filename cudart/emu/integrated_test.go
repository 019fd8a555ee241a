package emu_test

import (
	"bytes"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// TestIntegratedReaches: kernels of an integrated device may write pinned host memory. Kernels of a
// discrete device may not, and no kernel may use memory that is not pinned.
func TestIntegratedReaches(t *testing.T) {
	for _, integrated := range []bool{true, false} {
		r := open(t, emu.Options{Integrated: integrated})
		s := r.stream()
		b := r.host(512)
		at := cudart.DevicePtr(addr(b))
		err := r.MemsetAsync(at+8, 7, 100, s)
		if (err == nil) != integrated {
			t.Errorf("integrated %t: a set of host memory: %v", integrated, err)
		}
		if integrated {
			r.sync(s)
			if !bytes.Equal(b[8:108], bytes.Repeat([]byte{7}, 100)) {
				t.Errorf("host memory has %v", b[:110])
			}
			if err := r.MemsetAsync(at+500, 7, 13, s); err == nil {
				t.Error("a set beyond pinned memory: no error")
			}
		}
		if integrated {
			r.expect(emu.Bounds, "set of 13 bytes", "of which the last 1 are not in pinned host memory")
		} else {
			r.expect(emu.Bounds, "set of 100 bytes", "where there is no device memory")
		}
	}
}
