package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// testsum summarizes the output of `go test -json`. It prints:
//   - the packages with their seconds, slowest first
//   - the 30 slowest tests
//   - the output of failures
//   - the reasons of skipped tests, each with a test and a count
//   - the counts
//
// It fails if a test or a package failed, if the input cannot be read, or if no test ran.
func testsum([]string) error {
	s, err := readEvents(os.Stdin)
	if err != nil {
		return err
	}
	return s.print(os.Stdout)
}

// event is one line of the output of `go test -json`, with the fields that `go doc test2json` describes.
type event struct {
	Time       time.Time
	Action     string
	Package    string
	Test       string
	Elapsed    float64
	Output     string
	ImportPath string // import path, for output of a failed build
}

// summary holds what testsum prints, and the counts.
type summary struct {
	passed, failed, skipped int
	brokenPackages          int
	packages                []ended
	clock                   clock
	failures                []string            // the output of each failed test, package and build
	reasons                 map[string][]string // names of the skipped tests, by the reason of the skip
}

// ended is a package whose tests have ended: the line to print, and the seconds that its tests
// took.
type ended struct {
	line    string
	seconds float64
}

// place matches the file and line number with which go test begins each log message.
var place = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// readEvents reads events from r until its end. A line that is no event counts as a failure: for example, output of a
// program that failed before its first test.
func readEvents(r io.Reader) (*summary, error) {
	s := &summary{reasons: map[string][]string{}, clock: clock{}}
	output := map[string][]string{} // by package and test, or by import path
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.failures = append(s.failures, lines.Text()+"\n")
			continue
		}
		s.take(e, output)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return s, nil
}

// take adds the event e to the summary. output has the output lines of all tests and packages that
// have not ended yet.
func (s *summary) take(e event, output map[string][]string) {
	key := e.Package + " " + e.Test
	if e.Test != "" {
		s.clock.take(e)
	}
	switch e.Action {
	case "output":
		output[key] = append(output[key], e.Output)
		return
	case "build-output":
		s.failures = append(s.failures, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	said := output[key]
	delete(output, key)
	if e.Test == "" {
		s.endPackage(e, append(said, unfinished(e.Package, output)...))
		return
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		s.failures = append(s.failures, fmt.Sprintf("--- %s %s\n", e.Package, e.Test))
		s.failures = append(s.failures, said...)
	case "skip":
		s.skipped++
		reason := reasonOf(said)
		s.reasons[reason] = append(s.reasons[reason], e.Package+" "+e.Test)
	}
}

// endPackage adds a package that has ended to the summary. e is the package's last event, and said
// its output.
func (s *summary) endPackage(e event, said []string) {
	word := map[string]string{"pass": "ok  ", "fail": "FAIL", "skip": "?   "}[e.Action]
	note := fmt.Sprintf("%.1fs", e.Elapsed)
	if e.Action == "skip" {
		note = "[no test files]"
	}
	s.packages = append(s.packages, ended{fmt.Sprintf("%s\t%s\t%s\n", word, e.Package, note), e.Elapsed})
	if e.Action == "fail" {
		s.brokenPackages++
		s.failures = append(s.failures, said...)
	}
}

// unfinished returns the output lines of those tests of package pkg that have not ended, and removes them from output.
// A test does not end if the program crashes.
func unfinished(pkg string, output map[string][]string) []string {
	var said []string
	for _, key := range slices.Sorted(maps.Keys(output)) {
		if strings.HasPrefix(key, pkg+" ") {
			said = append(said, output[key]...)
			delete(output, key)
		}
	}
	return said
}

// reasonOf returns the reason why a test was skipped: the last message that the test itself has
// logged in said, its output.
func reasonOf(said []string) string {
	var messages []string
	for _, line := range said {
		if at := place.FindStringIndex(line); at != nil {
			messages = append(messages, strings.TrimSpace(line[at[1]:]))
		}
	}
	if len(messages) == 0 || messages[len(messages)-1] == "" {
		return "(no reason given)"
	}
	return messages[len(messages)-1]
}

// print writes the summary to w. It returns an error unless all tests passed.
func (s *summary) print(w io.Writer) error {
	var b strings.Builder
	slices.SortStableFunc(s.packages, func(x, y ended) int { return cmp.Compare(y.seconds, x.seconds) })
	for _, p := range s.packages {
		b.WriteString(p.line)
	}
	s.clock.writeSlowest(&b)
	for _, line := range s.failures {
		b.WriteString(line)
	}
	s.writeSkips(&b)
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	switch {
	case s.failed > 0 || s.brokenPackages > 0:
		return fmt.Errorf("%d tests failed in %d packages", s.failed, s.brokenPackages)
	case s.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}

// writeSkips lists the reasons of skipped tests, the most frequent first.
func (s *summary) writeSkips(b *strings.Builder) {
	reasons := slices.SortedFunc(maps.Keys(s.reasons), func(x, y string) int {
		return cmp.Or(len(s.reasons[y])-len(s.reasons[x]), strings.Compare(x, y))
	})
	for _, r := range reasons {
		tests := s.reasons[r]
		more := ""
		if len(tests) > 1 {
			more = fmt.Sprintf(" and %d more", len(tests)-1)
		}
		fmt.Fprintf(b, "skipped %d: %s (%s%s)\n", len(tests), r, tests[0], more)
	}
}

const (
	slowestListed = 30  // number of tests that writeSlowest lists
	apart         = 1.0 // a subtest of at least this many seconds is listed by itself
	least         = 0.1 // tests of fewer seconds are not listed
)

// timing is the timing of one test.
type timing struct {
	pkg, name string
	began     time.Time
	paused    bool    // the test called t.Parallel, so its parent's t.Run returned before it ended
	elapsed   float64 // seconds that go test reports, which exclude parallel subtests
	took      float64 // seconds from its first event to its last
	own       float64 // seconds without the subtests that are listed by themselves
	with      int     // number of subtests whose time own includes
}

// clock has the timing of each test. The key is package and name, with a space between them.
type clock map[string]*timing

// take records the event e, which belongs to a test.
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

// parent returns the test of which t is a subtest; nil if t is not a subtest.
func (c clock) parent(t *timing) *timing {
	for name := t.name; ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil
		}
		name = name[:i] // the name of a subtest may itself contain a slash, so look further
		if p := c[t.pkg+" "+name]; p != nil {
			return p
		}
	}
}

// slowest returns the tests sorted by their own time, longest first. A test's own time excludes the
// time in t.Run for subtests that are listed by themselves. Subtests shorter than the constant
// apart count toward their parent, so that a table of many quick cases is listed once.
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
	all := slices.SortedFunc(maps.Values(c), func(a, b *timing) int { // so that subtests come before their parents
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
	for i, t := range slow[:min(slowestListed, len(slow))] {
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
