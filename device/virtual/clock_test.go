package virtual

import (
	"math"
	"testing"
)

// ends starts works on a clock, all at once, and returns when each ends, in seconds.
func ends(works ...Work) []float64 {
	c := Clock{Devices: 2}
	out := make([]float64, len(works))
	left := len(works)
	for i, w := range works {
		c.Start(w, func() { out[i] = c.Time(); left-- })
	}
	c.Run(func() bool { return left == 0 })
	return out
}

// needs returns a Work of the given seconds. shares are pairs of a resource and the share that the
// work uses.
func needs(seconds float64, shares ...float64) Work {
	w := Work{Seconds: seconds}
	for i := 0; i < len(shares); i += 2 {
		w.Share[int(shares[i])] = shares[i+1]
	}
	return w
}

// beside returns w with shares of the second device's resources too, given in pairs of resource and
// share.
func beside(w Work, shares ...float64) Work {
	w.Peer, w.PeerShare = 1, needs(0, shares...).Share
	return w
}

// second returns w as a work of the second device.
func second(w Work) Work {
	w.Device = 1
	return w
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestShares: works that use the same resource slow each other down only if together they need more
// than there is. A work that needs less than its fair share is not slowed down.
func TestShares(t *testing.T) {
	const cores, memory, up, down, both = float64(Cores), float64(HostMemory), float64(LinkUp), float64(LinkDown), float64(LinkBoth)
	for _, tc := range []struct {
		what  string
		works []Work
		want  []float64
	}{
		{"alone", []Work{needs(3, cores, 1)}, []float64{3}},
		{"different resources", []Work{needs(3, cores, 1), needs(2, up, 1)}, []float64{3, 2}},
		{"two that need all of it", []Work{needs(1, cores, 1), needs(1, cores, 1)}, []float64{2, 2}},
		{"the rest has it alone", []Work{needs(1, cores, 1), needs(2, cores, 1)}, []float64{2, 3}},
		{"there is enough", []Work{needs(2, memory, 0.5), needs(3, memory, 0.5)}, []float64{2, 3}},
		// Together they need 1.6 times the memory, so both run at 1/1.6 of their speed and end at
		// 1.6 s.
		{"a little too little", []Work{needs(1, memory, 0.8), needs(1, memory, 0.8)}, []float64{1.6, 1.6}},
		// The two directions need 1.5 times what the link carries in both, so both copies end at
		// 1.5 s. The work on cores is not affected.
		{"both ways", []Work{needs(1, up, 1, both, 0.75), needs(1, down, 1, both, 0.75), needs(1, cores, 1)}, []float64{1.5, 1.5, 1}},
		// Two works share the cores and run at half speed, so the first uses 0.2 of the memory. The
		// third may use the remaining 0.8 and ends after 0.8/0.8 = 1 s.
		{"what others leave", []Work{needs(1, cores, 1, memory, 0.4), needs(1, cores, 1), needs(0.8, memory, 1)}, []float64{2, 2, 1}},
		{"another device's link", []Work{needs(1, up, 1), second(needs(1, up, 1))}, []float64{1, 1}},
		{"a copy that needs both links", []Work{beside(needs(1, up, 1), down, 1), second(needs(1, down, 1))}, []float64{2, 2}},
		{"a copy that needs the other's link", []Work{beside(needs(1, up, 1), down, 1), needs(1, down, 1), second(needs(1, up, 1))}, []float64{1, 1, 1}},
		{"one memory", []Work{needs(1, up, 1, memory, 1), second(needs(1, up, 1, memory, 1))}, []float64{2, 2}},
		{"nothing to do", []Work{{}, needs(1, cores, 1)}, []float64{0, 1}},
	} {
		for i, got := range ends(tc.works...) {
			if !near(got, tc.want[i]) {
				t.Errorf("%s: work %d ends after %g s, want %g", tc.what, i, got, tc.want[i])
			}
		}
	}
}

// TestOrder: the clock calls functions at their times, and functions of the same time in the order
// in which At was called. Spend delays works and timers that a function starts afterwards.
func TestOrder(t *testing.T) {
	var c Clock
	var got []string
	note := func(s string) func() { return func() { got = append(got, s) } }
	c.After(2, note("late"))
	c.After(1, note("first"))
	c.After(1, func() {
		note("second")()
		c.Spend(0.5)
		c.After(0, note("spent"))
		c.Start(needs(0.25, 0, 1), note("worked"))
		if c.Now().Seconds() != 1.5 || c.Time() != 1 {
			t.Errorf("now %v, time %v", c.Now(), c.Time())
		}
	})
	c.After(1, note("third"))
	c.Run(func() bool { return len(got) == 6 })
	want := []string{"first", "second", "third", "spent", "worked", "late"}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	c.After(1, func() { c.Spend(0.5) })
	if c.Run(func() bool { return false }); c.Now().Seconds() != c.Time() {
		t.Errorf("outside of all functions it is %v, and the time is %v", c.Now(), c.Time())
	}
	if c.Run(func() bool { return false }) {
		t.Error("nothing is left, and Run says that it has reached its end")
	}
}

// TestThen: Then takes the sum of both times and the time-weighted averages of the shares.
func TestThen(t *testing.T) {
	w := needs(1, float64(Cores), 1).Then(needs(3, float64(Cores), 0.2, float64(HostMemory), 0.4))
	if w.Seconds != 4 || !near(w.Share[Cores], 0.4) || !near(w.Share[HostMemory], 0.3) {
		t.Errorf("%+v", w)
	}
	var c Clock
	c.Start(w, func() {})
	c.Run(func() bool { return false })
	if u := c.Used().Since(Use{}); !near(u[Cores], 1.6) || !near(u[HostMemory], 1.2) {
		t.Errorf("used %v", u)
	}
	a, b := needs(1, float64(LinkUp), 1), needs(3, float64(LinkUp), 0.5)
	a.Peer, b.Peer = 1, 1
	a.PeerShare[LinkDown], b.PeerShare[LinkDown], b.PeerShare[WiresIn] = 0.8, 0.4, 1
	both := a.Then(b)
	if got := both.PeerShare; both.Peer != 1 || !near(got[LinkDown], 0.5) || !near(got[WiresIn], 0.75) || !near(got[LinkUp], 0) {
		t.Errorf("of the other device it needs %v", got)
	}
}

// TestSwitches: devices behind one switch share its link to the host; devices behind other switches
// are not slowed down. Use is the mean over the switches.
func TestSwitches(t *testing.T) {
	for _, resource := range []Resource{SwitchUp, SwitchDown, SwitchBoth} {
		for _, tc := range []struct {
			perSwitch int
			ends      [5]float64
			used      float64
		}{{2, [5]float64{2, 2, 2, 2, 1}, (2.0 + 2 + 1) / 3}, {0, [5]float64{1, 1, 1, 1, 1}, 1}} {
			c := Clock{Devices: 5, PerSwitch: tc.perSwitch}
			var ends [5]float64
			for i := range ends {
				w := needs(1, float64(resource), 1)
				w.Device, w.Peer = i, i
				c.Start(w, func() { ends[i] = c.Time() })
			}
			c.Run(func() bool { return false })
			if ends != tc.ends || !near(c.Used()[resource], tc.used) {
				t.Errorf("%s, %d devices each: the works end at %v, %v of the switches was used; want %v, %v",
					resource, tc.perSwitch, ends, c.Used()[resource], tc.ends, tc.used)
			}
		}
	}
}

// TestEndless: the clock advances even if a work's remaining time is smaller than the resolution of
// the clock's float64.
func TestEndless(t *testing.T) {
	var c Clock
	c.After(1e6, func() {}) // near 1e6 s a float64 resolves 2⁻³³ s
	c.Run(func() bool { return false })
	left := 1000
	var again func()
	again = func() {
		if left--; left > 0 {
			c.Start(needs(1e-7/3, float64(Compute), 1), again)
		}
	}
	c.Start(needs(1e-7, float64(Compute), 1), again)
	if !c.Run(func() bool { return left == 0 }) {
		t.Error("the clock stands still")
	}
}
