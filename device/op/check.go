package op

import (
	"fmt"
	"math"
	"slices"

	"mt/device"
)

// checker finds the first thing wrong with the arguments of an operation.
type checker struct{ err error }

// tensor wants t to hold at least n elements of type dt.
func (c *checker) tensor(name string, t device.Tensor, n int, dt device.DType) {
	switch {
	case c.err != nil:
	case t.Len < int64(n) || (t.None() && n > 0):
		c.err = fmt.Errorf("%s holds %d elements, want %d", name, t.Len, n)
	case n > 0 && t.DType != dt:
		c.err = fmt.Errorf("%s is %s, want %s", name, t.DType, dt)
	}
}

// optional is tensor where t may be none.
func (c *checker) optional(name string, t device.Tensor, n int, dt device.DType) {
	if !t.None() {
		c.tensor(name, t, n, dt)
	}
}

// act wants t to hold n elements of its own type, which is a compute type.
func (c *checker) act(name string, t device.Tensor, n int) {
	if c.err == nil && n > 0 && t.DType != device.F32 && t.DType != device.BF16 {
		c.err = fmt.Errorf("%s is %s, want fp32 or bf16", name, t.DType)
	}
	c.tensor(name, t, n, t.DType)
}

// sizes wants every extent to be at least 0.
func (c *checker) sizes(extents ...int) {
	for _, n := range extents {
		if n < 0 {
			c.fail("an extent is negative: %v", slices.Clone(extents))
		}
	}
}

// fail keeps what is wrong, unless something was before. Callers call it where it is,
// so that good arguments allocate nothing.
func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// strided is the number of elements of rows rows, stride apart, of n elements.
func strided(rows, stride, n int) int {
	if rows == 0 || n == 0 {
		return 0
	}
	return (rows-1)*stride + n
}

// softcap wants a bound that is none, or a positive number.
func (c *checker) softcap(limit float32) {
	if !(limit >= 0 && limit <= math.MaxFloat32) {
		c.fail("Softcap is %v: want a positive number, or 0 for none", limit)
	}
}
