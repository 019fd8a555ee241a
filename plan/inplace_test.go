package plan

import "testing"

func TestInPlacePays(t *testing.T) {
	for _, c := range []struct {
		own, host float64
		want      bool
	}{{200, 200, true}, {200, 180, true}, {200, 179, false}, {200, 0, false}, {0, 200, false}, {0, 0, false}} {
		if got := InPlacePays(c.own, c.host); got != c.want {
			t.Errorf("own %g, host %g: %t, want %t", c.own, c.host, got, c.want)
		}
	}
}
