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

func main() {
	s, err := read(os.Stdin)
	if err == nil {
		err = s.print(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}

// event is a line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Time       time.Time
	Action     string
	Package    string
	Test       string
	Elapsed    float64
	Output     string
	ImportPath string // of a build that failed
}

// summary is what the events came to.
type summary struct {
	passed, failed, skipped int
	brokenPackages          int
	packages                []ended
	clock                   clock
	failures                []string            // output of what failed
	reasons                 map[string][]string // why tests were skipped, and which
}

// ended is the line of a package and the seconds it took.
type ended struct {
	line    string
	seconds float64
}

// place is where a test logs from, which go test puts before every message.
var place = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// read takes events until r ends. Lines that are no events, such as those of a
// program that failed before its first test, are kept as failures.
func read(r io.Reader) (*summary, error) {
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

// take adds one event.
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

// endPackage adds the end of a package.
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

// unfinished takes from output what those tests of a package said that never ended, as
// happens when the program crashes in one.
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

// reasonOf is what a skipped test said last of its own.
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

// print writes the summary, and returns an error unless everything passed.
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

// writeSkips lists the reasons, the most frequent first.
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
