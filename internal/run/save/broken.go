package save

import (
	"errors"
	"math"

	"mt/host"
)

// errBroken ends the search for a weight that is not finite.
var errBroken = errors.New("a weight is not finite")

// BrokenTensor is the name of the first tensor with a weight that is not finite; "" for none. Where several ranks share the
// weights it looks at none.
func (s *Weights) BrokenTensor() (name string, err error) {
	if s.Team.Size() > 1 {
		return "", nil
	}
	for _, i := range s.Store.Distinct() {
		err := s.Store.Lend(i, false, func(l *host.LayerState) error {
			if name = brokenIn(l); name != "" {
				return errBroken
			}
			return nil
		})
		if errors.Is(err, errBroken) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// brokenIn is the name of a layer's first tensor with a weight that is not finite; "" for none.
func brokenIn(l *host.LayerState) string {
	for t, tl := range l.Layout.Tensors {
		if tl.Ref {
			continue
		}
		row := make([]float32, tl.Cols)
		for r := range tl.Rows {
			l.ReadRows(t, r, 1, row)
			for _, x := range row {
				if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
					return tl.Stored[0].Name
				}
			}
		}
	}
	return ""
}
