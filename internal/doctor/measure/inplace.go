package measure

import (
	"fmt"
	"math"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
)

// InPlace measures how fast a unified device computes on pinned host memory, relative to memory that it allocates. It
// times two operations on both kinds of memory. The first reads n fp32 and writes n bf16, each byte once. The second is
// a bf16 product, which reads its right operand repeatedly through caches that need not keep host memory. own is the
// time of the first operation on memory of the device. share is the smaller of the two operations' relative rates.
func (m *Meter) InPlace(n int64) (own Seconds, share float64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("measure: compute on %d bytes in place: %w", 4*n, err)
		}
	}()
	mem, err := m.dev.Alloc(accounts.Workspace, 6*n)
	if err != nil {
		return own, 0, err
	}
	defer m.dev.Free(mem)
	from, err := m.dev.AllocHost(4 * n)
	if err != nil {
		return own, 0, err
	}
	defer m.dev.FreeHost(from)
	m.s.Zero(mem)
	side := int(math.Sqrt(float64(n)))
	if side > 64 {
		side -= side % 64
	}
	elems := int64(side) * int64(side)
	once := func(src device.Mem) (Seconds, error) {
		c := op.Convert{Dst: mem.Tensor(device.BF16, 4*n, n), Src: src.Tensor(device.F32, 0, n), N: n}
		return m.enqueued(func() { op.Do(m.dev, m.s, c) })
	}
	again := func(src device.Mem) (Seconds, error) {
		p := op.MatMul{M: side, N: side, K: side, TransB: true, A: mem.Tensor(device.BF16, 2*n, elems), B: src.Tensor(device.BF16, 0, elems), D: mem.Tensor(device.BF16, 4*n, elems)}
		return m.enqueued(func() { op.Do(m.dev, m.s, p) })
	}
	share = math.Inf(1)
	for i, run := range []func(device.Mem) (Seconds, error){once, again} {
		here, err := run(mem)
		if err != nil {
			return own, 0, err
		}
		there, err := run(m.dev.BindHost(from))
		if err != nil {
			return own, 0, err
		}
		share = min(share, here.Median/there.Median)
		if i == 0 {
			own = here
		}
	}
	return own, share, nil
}
