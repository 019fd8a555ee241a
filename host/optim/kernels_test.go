package optim

import "testing"

func TestChooseHonoursTheLimit(t *testing.T) {
	all := []*kernels{{name: "avx512"}, {name: "avx2"}, &generic}
	for limit, want := range map[string]string{"": "avx512", "avx512": "avx512", "avx2": "avx2", "generic": "generic", "other": "avx512"} {
		if got := choose(limit, all).name; got != want {
			t.Errorf("limit %q: %s, want %s", limit, got, want)
		}
	}
	if got := choose("avx512", all[1:]).name; got != "avx2" {
		t.Errorf("without avx512: %s", got)
	}
}

// TestUse: every level of this machine can be chosen, and no other.
func TestUse(t *testing.T) {
	first := Level()
	defer Use(first)
	for _, level := range Levels() {
		before := Level()
		if was := Use(level); was != before || Level() != level {
			t.Errorf("Use(%q) = %q, before was %q, now is %q", level, was, before, Level())
		}
	}
	mustPanic(t, func() { Use("abacus") })
}
