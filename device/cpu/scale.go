package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, scale) }

// scale treats each element as a row of one.
func scale(s *stream, a *op.Scale) error {
	writes(a.X, 1, 0, int(a.N))
	all := actOf(a.X)
	s.forRows(int(a.N), 1, func(sc *scratch, from, to int) {
		v := all.load(sc, 0, from, to-from)
		vec.Scale(v, v, a.Factor)
		all.store(from, v)
	})
	return nil
}
