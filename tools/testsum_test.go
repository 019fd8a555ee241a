package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// events joins lines of the output of `go test -json`.
func events(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestSummary(t *testing.T) {
	const passing = `{"Action":"pass","Package":"p","Test":"TestA"}`
	const ended = `{"Action":"pass","Package":"p","Elapsed":1.25}`
	tests := []struct {
		name, in string
		want     []string // parts of the output, in order
		err      string   // part of the error; "" for none
	}{
		{
			"all pass", events(passing, ended),
			[]string{"ok  \tp\t1.2s\n", "1 passed, 0 failed, 0 skipped\n"}, "",
		},
		{
			"skips by reason", events(
				passing,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: no fixtures here\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestC/x","Output":"    c_test.go:10: no fixtures here\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestC/x"}`,
				`{"Action":"skip","Package":"p","Test":"TestD"}`,
				ended,
			),
			[]string{
				"skipped 2: no fixtures here (p TestB and 1 more)\n",
				"skipped 1: (no reason given) (p TestD)\n",
				"1 passed, 0 failed, 3 skipped\n",
			}, "",
		},
		{
			"as many skips for two reasons", events(
				passing,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: no GPU\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: no fixtures\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestC"}`,
				ended,
			),
			[]string{"skipped 1: no GPU (p TestB)\n", "skipped 1: no fixtures (p TestC)\n"}, "",
		},
		{
			"a failure shows its output and no other's", events(
				`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: got 1\n"}`,
				passing,
				`{"Action":"fail","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\n"}`,
				`{"Action":"fail","Package":"p","Elapsed":0.5}`,
			),
			[]string{"FAIL\tp\t0.5s\n", "--- p TestB\n", "    b_test.go:9: got 1\n", "1 passed, 1 failed, 0 skipped\n"},
			"1 tests failed in 1 packages",
		},
		{
			"a crash in a test", events(
				passing,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"panic: at 7\n"}`,
				`{"Action":"output","Package":"pq","Test":"TestB","Output":"quiet\n"}`,
				`{"Action":"fail","Package":"p","Elapsed":0.5}`,
			),
			[]string{"panic: at 7\n"}, "0 tests failed in 1 packages",
		},
		{
			"a package that does not build", events(
				`{"Action":"build-output","ImportPath":"p","Output":"p/a.go:1: undefined: x\n"}`,
				`{"Action":"build-fail","ImportPath":"p"}`,
				`{"Action":"fail","Package":"p","Elapsed":0}`,
				`{"Action":"pass","Package":"q","Test":"TestA"}`,
			),
			[]string{"p/a.go:1: undefined: x\n", "1 passed, 0 failed"},
			"0 tests failed in 1 packages",
		},
		{
			"a crash outside any test", events(passing, "fatal error: out of memory", `{"Action":"fail","Package":"p"}`),
			[]string{"fatal error: out of memory\n"}, "0 tests failed in 1 packages",
		},
		{"nothing ran", events(`{"Action":"skip","Package":"p"}`), []string{"?   \tp\t[no test files]\n"}, "no test ran"},
		{"empty input", "", []string{"0 passed"}, "no test ran"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := readEvents(strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			err = s.print(&b)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			rest := b.String()
			for _, part := range tt.want {
				_, after, ok := strings.Cut(rest, part)
				if !ok {
					t.Fatalf("output\n%s\nlacks %q, or has it too early", b.String(), part)
				}
				rest = after
			}
			if strings.Contains(b.String(), "quiet") {
				t.Errorf("output of a test that passed is shown:\n%s", b.String())
			}
		})
	}
}

// at returns an event of a test in package p, this many seconds after the first event. elapsed is
// the time that go test reports.
func at(seconds float64, action, test string, elapsed float64) string {
	when := time.Unix(0, int64(seconds*1e9)).UTC().Format(time.RFC3339Nano)
	return fmt.Sprintf(`{"Time":%q,"Action":%q,"Package":"p","Test":%q,"Elapsed":%g}`, when, action, test, elapsed)
}

func TestSlowest(t *testing.T) {
	many := []string{at(0, "run", "TestA", 0)}
	for i := range 40 {
		name := fmt.Sprintf("Test%02d", i)
		many = append(many, at(0, "run", name, 0), at(9, "pass", name, 2+float64(i)))
	}
	for _, tc := range []struct {
		name, in string
		want     []string // the lines behind the heading
	}{
		{"the slowest first", events(at(0, "run", "TestA", 0), at(1, "pass", "TestA", 1), at(1, "run", "TestB", 0), at(3, "fail", "TestB", 2)), []string{
			"2.0s p TestB", "1.0s p TestA",
		}},
		{"a parent without its slow subtests", events(
			at(0, "run", "TestA", 0), at(0, "run", "TestA/x", 0), at(3, "pass", "TestA/x", 3), at(5, "pass", "TestA", 5),
		), []string{"3.0s p TestA/x", "2.0s p TestA"}},
		{"a parent that only waits", events(
			at(0, "run", "TestA", 0), at(0, "run", "TestA/x", 0), at(3, "pass", "TestA/x", 3), at(3, "pass", "TestA", 3),
		), []string{"3.0s p TestA/x"}},
		{"a table of quick cases", events(
			at(0, "run", "TestA", 0), at(0, "run", "TestA/x", 0), at(.5, "pass", "TestA/x", .5), at(.5, "run", "TestA/y", 0), at(1.25, "pass", "TestA/y", .75),
			at(1.25, "pass", "TestA", 1.25),
		), []string{"1.2s p TestA and 2 subtests"}},
		{"parallel subtests are not in their parent's time", events(
			at(0, "run", "TestA", 0), at(0, "run", "TestA/x", 0), at(0, "pause", "TestA/x", 0), at(2, "cont", "TestA/x", 0), at(6, "pass", "TestA/x", 4),
			at(6, "pass", "TestA", 2),
		), []string{"4.0s p TestA/x", "2.0s p TestA"}},
		{"a group that waits for parallel subtests", events(
			at(0, "run", "TestA", 0), at(1, "run", "TestA/each", 0), at(1, "run", "TestA/each/0", 0), at(1, "pause", "TestA/each/0", 0),
			at(1, "cont", "TestA/each/0", 0), at(4, "pass", "TestA/each/0", 3), at(4, "pass", "TestA/each", 0), at(4, "pass", "TestA", 4),
		), []string{"3.0s p TestA/each/0", "1.0s p TestA and 1 subtests"}},
		{"a name with a slash", events(
			at(0, "run", "TestA", 0), at(0, "run", "TestA/x/y", 0), at(.5, "pass", "TestA/x/y", .5), at(.5, "pass", "TestA", .5),
		), []string{"0.5s p TestA and 1 subtests"}},
		{"nothing slow", events(at(0, "run", "TestA", 0), at(0, "pass", "TestA", 0)), nil},
		{"thirty of many", events(many...), append([]string{"41.0s p Test39"}, make([]string, 29)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := readEvents(strings.NewReader(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			s.clock.writeSlowest(&b)
			var got []string
			for i, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
				if i > 0 {
					got = append(got, strings.Join(strings.Fields(line), " "))
				}
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%d lines, want %d:\n%s", len(got), len(tc.want), b.String())
			}
			for i, want := range tc.want {
				if want != "" && got[i] != want {
					t.Errorf("line %d is %q, want %q", i+1, got[i], want)
				}
			}
		})
	}
}

// TestPackagesBySlowness: testsum lists packages with their seconds, slowest first, and packages
// without tests last.
func TestPackagesBySlowness(t *testing.T) {
	s, err := readEvents(strings.NewReader(events(
		`{"Action":"skip","Package":"none"}`,
		`{"Action":"pass","Package":"quick","Elapsed":0.5}`,
		`{"Action":"pass","Package":"slow","Elapsed":12}`,
		`{"Action":"pass","Package":"medium","Elapsed":2}`,
		`{"Action":"pass","Package":"medium","Test":"TestA"}`,
	)))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := s.print(&b); err != nil {
		t.Fatal(err)
	}
	const want = "ok  \tslow\t12.0s\nok  \tmedium\t2.0s\nok  \tquick\t0.5s\n?   \tnone\t[no test files]\n"
	if !strings.HasPrefix(b.String(), want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", b.String(), want)
	}
}
