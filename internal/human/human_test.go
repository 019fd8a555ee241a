package human

import "testing"

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{-1: "0 B", 0: "0 B", 1000: "1000 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
