package op

import (
	"fmt"
	"math"
	"slices"

	"mt/device"
)

// checker checks an operation's arguments and keeps the first mistake.
type checker struct{ err error }

// tensor checks that t holds at least n elements of type dt.
func (c *checker) tensor(name string, t device.Tensor, n int, dt device.DType) {
	switch {
	case c.err != nil:
	case t.Len < int64(n) || (t.None() && n > 0):
		c.err = fmt.Errorf("%s holds %d elements, want %d", name, t.Len, n)
	case n > 0 && t.DType != dt:
		c.err = fmt.Errorf("%s is %s, want %s", name, t.DType, dt)
	}
}

// optional checks t like tensor, but accepts a t that is none.
func (c *checker) optional(name string, t device.Tensor, n int, dt device.DType) {
	if !t.None() {
		c.tensor(name, t, n, dt)
	}
}

// act checks that t holds at least n elements of a compute type (fp32 or bf16).
func (c *checker) act(name string, t device.Tensor, n int) {
	if c.err == nil && n > 0 && t.DType != device.F32 && t.DType != device.BF16 {
		c.err = fmt.Errorf("%s is %s, want fp32 or bf16", name, t.DType)
	}
	c.tensor(name, t, n, t.DType)
}

// sizes checks that none of the extents is negative.
func (c *checker) sizes(extents ...int) {
	for _, n := range extents {
		if n < 0 {
			c.fail("an extent is negative: %v", slices.Clone(extents))
		}
	}
}

// fail records a mistake, unless there is an earlier one. It must be called only after a mistake was found: formatting
// its arguments allocates memory, and valid arguments must not.
func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// strided returns how many elements rows rows span, from the first element of the first row to the last element of the
// last. Each row has n elements, and rows begin stride elements apart.
func strided(rows, stride, n int) int {
	if rows == 0 || n == 0 {
		return 0
	}
	return (rows-1)*stride + n
}

// lossTerms checks that Smoothing is in [0, 1) and that Z is finite and not negative.
func (c *checker) lossTerms(t LossTerms) {
	if !(t.Smoothing >= 0 && t.Smoothing < 1) {
		c.fail("Smoothing is %v: want a share of 1, or 0 for none", t.Smoothing)
	}
	if !(t.Z >= 0 && t.Z <= math.MaxFloat32) {
		c.fail("Z is %v: want a positive number, or 0 for none", t.Z)
	}
}

// softcap checks that limit is 0 (none) or positive and finite.
func (c *checker) softcap(limit float32) {
	if !(limit >= 0 && limit <= math.MaxFloat32) {
		c.fail("Softcap is %v: want a positive number, or 0 for none", limit)
	}
}
