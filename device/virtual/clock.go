package virtual

import (
	"math"
	"slices"
	"time"
)

// Resource is something that concurrent works (computations and copies) share, such as a link. When it is used up, they
// slow each other down.
type Resource int

// String returns the resource's name for people.
func (r Resource) String() string {
	return [...]string{"host cores", "host memory", "link to the device", "link to the host", "link both ways", "device", "wires to other devices",
		"wires from other devices", "switch to the devices", "switch to the host", "switch both ways", "disk", "network"}[r]
}

// perDevice reports whether every device has its own resource r, such as its link. Likewise,
// perSwitch is for every PCIe switch.
func (r Resource) perDevice() bool { return r >= LinkUp && r <= WiresIn }
func (r Resource) perSwitch() bool { return r >= SwitchUp && r <= SwitchBoth }

// The resources. A work's share of a resource is 0 if the work does not use it, and 1 if the work
// at full speed needs all of it.
const (
	Cores      Resource = iota // of the host
	HostMemory                 // the bandwidth of the host's memory
	LinkUp                     // from the host to the device
	LinkDown                   // from the device to the host
	LinkBoth                   // both directions together
	Compute                    // the device's compute units
	WiresOut                   // between devices, apart from the links: out of a device
	WiresIn                    // into a device
	SwitchUp                   // the shared link of the devices behind a switch, to the devices
	SwitchDown
	SwitchBoth
	Disk
	Network // to the other hosts, in each direction
	NumResources
)

// Work is a computation or copy. It takes Seconds at full speed, and meanwhile uses the given Share of every resource.
type Work struct {
	Seconds float64
	Share   [NumResources]float64
	Device  int // the device whose links and units it uses
	// Peer is another device whose resources the work also uses, by the shares in PeerShare. If no other device takes
	// part, Peer equals Device.
	Peer      int
	PeerShare [NumResources]float64
}

// Then returns one work that stands for w followed by next, on the same devices. Each share is the
// average of the two shares, weighted by their times.
func (w Work) Then(next Work) Work {
	total := w.Seconds + next.Seconds
	if total <= 0 {
		return Work{}
	}
	out := Work{Seconds: total, Device: w.Device, Peer: w.Peer}
	mean := func(a, b float64) float64 {
		if a == b && (a == 0 || a == 1) {
			return a // what the division would give
		}
		return (a*w.Seconds + b*next.Seconds) / total
	}
	for r := range out.Share {
		out.Share[r] = mean(w.Share[r], next.Share[r])
		out.PeerShare[r] = mean(w.PeerShare[r], next.PeerShare[r])
	}
	return out
}

// Clock is a virtual clock. It runs works (computations and copies that take time) and timers, and
// calls a function at each one's end. It is not for concurrent use.
type Clock struct {
	now    float64 // seconds
	spent  float64 // by the current function, see Spend
	timers timers
	count  int // timers set so far
	active []*running
	free   []*running // complete works, for reuse
	stale  bool       // speeds must be recomputed
	used   Use
	sums   [2][]Use // memory of share

	// Devices is the number of devices; 0: one. Use then counts a resource that every device has as
	// the mean over the devices.
	Devices int
	// PerSwitch is the number of devices behind one PCIe switch; 0: one. Use counts a switch's
	// resources as the mean over the switches.
	PerSwitch int
}

// Use says for each resource how many seconds it was fully used. A second of half use counts as half a second.
type Use [NumResources]float64

// Since returns u minus earlier.
func (u Use) Since(earlier Use) Use {
	for r := range u {
		u[r] -= earlier[r]
	}
	return u
}

// Used returns how much every resource was used since the clock began.
func (c *Clock) Used() Use { return c.used }

// running is a work that has begun and is not complete.
type running struct {
	needs []need
	left  float64 // seconds at full speed
	speed float64 // at most 1
	done  func()
	start func() // begins the work
}

// need is the share of one resource that a work uses at full speed. owner says whose resource it is: the number of the
// device or of the switch, or 0 for a resource that all share.
type need struct {
	resource, owner int
	share           float64
}

// needs appends to out the resources of which a work uses these shares, on the given device. A resource of a switch is
// the one of the device's switch.
func (c *Clock) needs(out []need, shares *[NumResources]float64, device int) []need {
	for r, s := range shares {
		if s <= 0 {
			continue
		}
		owner := 0
		if Resource(r).perDevice() {
			owner = device
		} else if Resource(r).perSwitch() {
			owner = device / max(1, c.PerSwitch)
		}
		out = append(out, need{r, owner, s})
	}
	return out
}

// owners returns how many of resource r the machine has: the number of devices, the number of
// switches, or 1.
func (c *Clock) owners(r Resource) int {
	n, per := max(1, c.Devices), max(1, c.PerSwitch)
	switch {
	case r.perDevice():
		return n
	case r.perSwitch():
		return (n + per - 1) / per
	}
	return 1
}

type timer struct {
	at    float64
	order int
	f     func()
}

// Now returns the time on the clock. While a function runs, the time advances only by what the
// function spends (Spend).
func (c *Clock) Now() time.Duration { return time.Duration((c.now + c.spent) * 1e9) }

// Time returns the clock's time in seconds. Unlike Now, Time leaves out the current function's
// spending (Spend).
func (c *Clock) Time() float64 { return c.now }

// At arranges that f is called at a time in seconds, on the scale of Time.
func (c *Clock) At(seconds float64, f func()) {
	c.count++
	c.timers.push(timer{at: seconds, order: c.count, f: f})
}

// Spend says that the current function takes seconds of its own, for example for a call into a driver. Work that the
// function starts afterwards starts later.
func (c *Clock) Spend(seconds float64) { c.spent += seconds }

// After arranges that f is called when the given seconds have passed from Now.
func (c *Clock) After(seconds float64, f func()) { c.At(c.now+c.spent+seconds, f) }

// Start begins the work w now, and calls done when w is complete. Other works that run at the same time may slow it
// down.
func (c *Clock) Start(w Work, done func()) {
	if w.Seconds <= 0 {
		c.After(0, done)
		return
	}
	r := c.record()
	r.left, r.done = w.Seconds, done
	r.needs = c.needs(c.needs(r.needs[:0], &w.Share, w.Device), &w.PeerShare, w.Peer)
	if c.spent > 0 {
		c.After(0, r.start)
		return
	}
	r.start()
}

// record returns the record of a new work. It reuses the record of a complete work if there is one.
func (c *Clock) record() *running {
	if last := len(c.free) - 1; last >= 0 {
		r := c.free[last]
		c.free = c.free[:last]
		return r
	}
	r := &running{}
	r.start = func() {
		c.active = append(c.active, r)
		c.stale = true
	}
	return r
}

// Run advances the clock from one end of a work or timer to the next, until the function `until`
// returns true. It returns false if nothing is left to wait for before that.
func (c *Clock) Run(until func() bool) bool {
	for !until() {
		if !c.next() {
			return false
		}
	}
	return true
}

// next advances the clock to the next end of a work or timer, and calls its function. It returns
// false if there is none.
func (c *Clock) next() bool {
	if c.stale {
		c.share()
		c.stale = false
	}
	at, first := math.Inf(1), -1
	for i, w := range c.active {
		if end := c.now + w.left/w.speed; end < at {
			at, first = end, i
		}
	}
	if len(c.timers) > 0 && c.timers[0].at <= at {
		t := c.timers.pop()
		c.advance(t.at)
		c.call(t.f)
		return true
	}
	if first < 0 {
		return false
	}
	c.advance(at)
	done := c.active[first].done
	c.free = append(c.free, c.active[first])
	c.active = append(c.active[:first], c.active[first+1:]...)
	c.stale = true
	c.call(done)
	return true
}

func (c *Clock) advance(at float64) {
	passed := max(0, at-c.now)
	for _, w := range c.active {
		w.left = max(0, w.left-passed*w.speed)
		for _, n := range w.needs {
			c.used[n.resource] += n.share * w.speed * passed / float64(c.owners(Resource(n.resource)))
		}
	}
	c.now = max(c.now, at)
}

func (c *Clock) call(f func()) {
	c.spent = 0
	f()
	c.spent = 0
}

// share sets the speeds of all running works by max-min fairness. All speeds grow equally from 0 until a resource is
// used up. The works that need this resource stay at the speed reached. The other speeds keep growing, at most to 1.
func (c *Clock) share() {
	for _, w := range c.active {
		w.speed = -1 // not set yet
	}
	if c.sums[0] == nil {
		c.sums = [2][]Use{make([]Use, max(1, c.Devices)), make([]Use, max(1, c.Devices))}
	}
	used, need := c.sums[0], c.sums[1]
	clear(used)
	speed := 0.0
	for left := len(c.active); left > 0; {
		// need becomes how much of each resource all works without a speed use together. From it
		// follows how far their speeds can still grow before a resource is used up.
		clear(need)
		for _, w := range c.active {
			if w.speed < 0 {
				for _, n := range w.needs {
					need[n.owner][n.resource] += n.share
				}
			}
		}
		limit, binding, owner := 1.0, -1, 0
		for d := range need {
			for r := range need[d] {
				if need[d][r] <= 0 {
					continue
				}
				if l := max(0, 1-used[d][r]) / need[d][r]; l < limit {
					limit, binding, owner = l, r, d
				}
			}
		}
		speed = max(limit, 1e-9)
		for _, w := range c.active {
			if w.speed < 0 && (binding < 0 || w.uses(binding, owner)) {
				w.speed = speed
				left--
				for _, n := range w.needs {
					used[n.owner][n.resource] += n.share * speed
				}
			}
		}
	}
}

// uses reports whether a work uses the resource of this owner, a device or a switch (0 for a resource that all share).
func (w *running) uses(resource, owner int) bool {
	return slices.ContainsFunc(w.needs, func(n need) bool { return n.resource == resource && n.owner == owner })
}

// timers is a heap by time. Timers of equal time keep the order in which they were set. It is written out, because
// container/heap allocates for each timer.
type timers []timer

func (t timers) less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].order < t[j].order
}

func (t *timers) push(x timer) {
	*t = append(*t, x)
	h := *t
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (t *timers) pop() timer {
	h, last := *t, len(*t)-1
	x := h[0]
	h[0], h[last] = h[last], timer{}
	h = h[:last]
	*t = h
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && h.less(child+1, child) {
			child++
		}
		if child >= last || !h.less(child, i) {
			return x
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
