package human

import (
	"strings"
	"testing"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{-1: "0 B", 0: "0 B", 1000: "1000 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestScreen: a long message keeps its beginning and its end, and says how much is left out.
func TestScreen(t *testing.T) {
	for _, n := range []int{0, 10, screen} {
		if text := strings.Repeat("é", n/2); Screen(text) != text {
			t.Errorf("%d bytes are cut", n)
		}
	}
	long := "config.json: " + strings.Repeat("é", 1<<20) + "; the way out"
	got := Screen(long)
	if len(got) > screen || !strings.HasPrefix(got, "config.json: é") || !strings.HasSuffix(got, "é; the way out") || !strings.Contains(got, "… (2,094,") ||
		strings.ToValidUTF8(got, "") != got {
		t.Errorf("%d bytes: %.40s … %s", len(got), got, got[len(got)-60:])
	}
}
