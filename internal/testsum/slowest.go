package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	listed = 30  // tests that writeSlowest lists
	apart  = 1.0 // seconds from which a subtest is listed apart from its parent
	least  = 0.1 // seconds of a listed test
)

// timing is the time of one test.
type timing struct {
	pkg, name string
	began     time.Time
	paused    bool    // it called t.Parallel, so its parent did not wait for it in t.Run
	elapsed   float64 // seconds, as go test says: without the parallel subtests
	took      float64 // seconds from its first event to its last
	own       float64 // seconds without those of the subtests that are listed apart
	with      int     // subtests that own includes
}

// clock is the times of all tests, by package and name.
type clock map[string]*timing

// take adds one event of a test.
func (c clock) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "run":
		c[key] = &timing{pkg: e.Package, name: e.Test, began: e.Time}
		return
	case "pass", "fail", "skip":
	case "pause":
	default:
		return
	}
	t := c[key]
	if t == nil {
		t = &timing{pkg: e.Package, name: e.Test, began: e.Time}
		c[key] = t
	}
	if e.Action == "pause" {
		t.paused = true
		return
	}
	t.elapsed = e.Elapsed
	t.took = max(e.Elapsed, e.Time.Sub(t.began).Seconds())
}

// parent returns the test that t is a subtest of; nil: t is no subtest.
func (c clock) parent(t *timing) *timing {
	for name := t.name; ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil
		}
		name = name[:i] // a subtest's own name may have a slash
		if p := c[t.pkg+" "+name]; p != nil {
			return p
		}
	}
}

// slowest returns the tests with the longest own time, the longest first. A test's own time is without the time for which it
// waits in t.Run. Subtests under a second count for their parent, so that a table of many quick cases is listed once.
func (c clock) slowest() []*timing {
	for _, t := range c {
		t.own, t.with = t.elapsed, 0
	}
	for _, t := range c {
		if p := c.parent(t); p != nil && !t.paused {
			p.own -= t.took
		}
	}
	for _, t := range c {
		t.own = max(t.own, 0)
	}
	all := slices.SortedFunc(maps.Values(c), func(a, b *timing) int { // subtests before their parents
		return cmp.Or(strings.Count(b.name, "/")-strings.Count(a.name, "/"), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
	})
	var out []*timing
	for _, t := range all {
		switch p := c.parent(t); {
		case p != nil && t.own < apart:
			p.own += t.own
			p.with += 1 + t.with
		case t.own >= least:
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b *timing) int { return cmp.Compare(b.own, a.own) })
	return out
}

// writeSlowest lists the slowest tests.
func (c clock) writeSlowest(b *strings.Builder) {
	slow := c.slowest()
	for i, t := range slow[:min(listed, len(slow))] {
		if i == 0 {
			fmt.Fprintf(b, "slowest tests:\n")
		}
		note := ""
		if t.with > 0 {
			note = fmt.Sprintf(" and %d subtests", t.with)
		}
		fmt.Fprintf(b, "%7.1fs\t%s %s%s\n", t.own, t.pkg, t.name, note)
	}
}
