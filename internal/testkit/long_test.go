package testkit

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// TestLeftOut: without MT_LONG, LongOnly skips a test and Count returns part. With MT_LONG=1 the test runs and Count
// returns four times part, and with MT_LONG=all it returns whole.
func TestLeftOut(t *testing.T) {
	if set := os.Getenv(LongVariable) != ""; LongAsked() != set {
		t.Errorf("%s is set: %t, asked: %t", LongVariable, set, LongAsked())
	}
	defer func(was bool) { asked = was }(asked)
	for _, tc := range []struct {
		value         string
		tried, step16 int
	}{{"", 3, 16}, {"1", 12, 4}, {Everything, 50, 1}} {
		t.Setenv(LongVariable, tc.value)
		on := tc.value != ""
		asked = on
		ran, tried := false, 0
		t.Run("a table", func(t *testing.T) {
			tried = Count(t, 50, 3)
			t.Run("one", func(t *testing.T) { LongOnly(t); ran = true })
		})
		if ran != on || tried != tc.tried || LongAsked() != on {
			t.Errorf("%s=%s: the long test ran: %t, %d of 50 were tried, want %d", LongVariable, tc.value, ran, tried, tc.tried)
		}
		t.Run("every", func(t *testing.T) {
			if got := Every(t, 16); got != tc.step16 {
				t.Errorf("%s=%s: one in %d is tried, want one in %d", LongVariable, tc.value, got, tc.step16)
			}
		})
		t.Run("drawn", func(t *testing.T) {
			defer func(was func(string, int) bool) { draw = was }(draw)
			for _, drawn := range []bool{false, true} {
				var of int
				draw = func(_ string, n int) bool { of = n; return drawn }
				ran := false
				t.Run("one", func(t *testing.T) { Drawn(t, 5); ran = true })
				if ran != (on && drawn) || on && of != 5 {
					t.Errorf("asked %t, drawn %t: ran: %t, one of %d", on, drawn, ran, of)
				}
			}
		})
		t.Run("few", func(t *testing.T) {
			if got := Count(t, 2, 3); got != 2 {
				t.Errorf("asked %t: %d of 2 are tried", on, got)
			}
		})
	}
}

// TestDraw: with MT_LONG=1 about one name in n is drawn, the same in each run, and with MT_LONG=all every name is.
func TestDraw(t *testing.T) {
	for value, want := range map[string]int{"1": 1000, Everything: 3000} {
		t.Setenv(LongVariable, value)
		n := 0
		for i := range 3000 {
			name := fmt.Sprintf("TestOps/case_%d", i)
			first := draw(name, 3)
			if first {
				n++
			}
			if draw(name, 3) != first {
				t.Errorf("%s=%s: %s is drawn once and then not, or the other way", LongVariable, value, name)
			}
		}
		if n < want-300 || n > want+300 {
			t.Errorf("%s=%s: %d of 3000 are drawn, want about %d", LongVariable, value, n, want)
		}
	}
}

// TestSeed: the seed is the same in every run, except with MT_LONG=all, where it is random.
func TestSeed(t *testing.T) {
	for value, same := range map[string]bool{"": true, "1": true, Everything: false} {
		t.Setenv(LongVariable, value)
		first := Seed()
		if got := first == Seed(); got != same {
			t.Errorf("%s=%s: the seed stays: %t, want %t", LongVariable, value, got, same)
		}
	}
}

// TestDrawnInRace: the race detector runs only the drawn cases; without it all cases run.
func TestDrawnInRace(t *testing.T) {
	defer func(was func(string, int) bool) { draw = was }(draw)
	for _, drawn := range []bool{false, true} {
		draw = func(_ string, n int) bool { return drawn && n == 4 }
		ran := false
		t.Run("one", func(t *testing.T) { DrawnInRace(t, 4); ran = true })
		of := false
		InRace{t, 4}.Run("of a table", func(InRace) { of = true })
		if want := drawn || !Race; ran != want || of != want {
			t.Errorf("with the race detector %t, drawn %t: ran %t, of a table %t", Race, drawn, ran, of)
		}
	}
}

// TestNotShort: NotShort skips a test exactly if -short is given.
func TestNotShort(t *testing.T) {
	short := flag.Lookup("test.short")
	was := short.Value.String()
	defer func() { _ = short.Value.Set(was) }()
	for _, on := range []bool{false, true} {
		if err := short.Value.Set(strconv.FormatBool(on)); err != nil {
			t.Fatal(err)
		}
		ran := false
		t.Run("one", func(t *testing.T) { NotShort(t); ran = true })
		if ran == on {
			t.Errorf("-short=%t: ran %t", on, ran)
		}
	}
}
