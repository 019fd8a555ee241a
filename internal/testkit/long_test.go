package testkit

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// TestLeftOut: without MT_LONG, LongOnly skips a test and Count returns part. With it, the test
// runs and Count returns whole.
func TestLeftOut(t *testing.T) {
	if set := os.Getenv(LongVariable) != ""; LongAsked() != set {
		t.Errorf("%s is set: %t, asked: %t", LongVariable, set, LongAsked())
	}
	defer func(was bool) { asked = was }(asked)
	for _, on := range []bool{false, true} {
		asked = on
		ran, tried := false, 0
		t.Run("a table", func(t *testing.T) {
			tried = Count(t, 10, 3)
			t.Run("one", func(t *testing.T) { LongOnly(t); ran = true })
		})
		if want := map[bool]int{false: 3, true: 10}[on]; ran != on || tried != want || LongAsked() != on {
			t.Errorf("asked %t: the long test ran: %t, %d of 10 were tried", on, ran, tried)
		}
		t.Run("every", func(t *testing.T) {
			if got, want := Every(t, 7), map[bool]int{false: 7, true: 1}[on]; got != want {
				t.Errorf("asked %t: one in %d is tried, want one in %d", on, got, want)
			}
		})
		t.Run("drawn", func(t *testing.T) {
			defer func(was func(int) bool) { draw = was }(draw)
			for _, drawn := range []bool{false, true} {
				var of int
				draw = func(n int) bool { of = n; return drawn }
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

// TestDraw: with MT_LONG=1 about one draw in n runs its test, and with MT_LONG=all every draw does.
func TestDraw(t *testing.T) {
	for value, want := range map[string]int{"1": 1000, Everything: 3000} {
		t.Setenv(LongVariable, value)
		n := 0
		for range 3000 {
			if draw(3) {
				n++
			}
		}
		if n < want-300 || n > want+300 { // eleven times the deviation of so many draws
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
	defer func(was func(int) bool) { draw = was }(draw)
	for _, drawn := range []bool{false, true} {
		draw = func(n int) bool { return drawn && n == 4 }
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
