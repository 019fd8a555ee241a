package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// at is an event of a test in package p, so many seconds after the first.
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
			s, err := read(strings.NewReader(tc.in))
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

// TestPackagesBySlowness: packages are listed with their seconds, the slowest first, and those without tests last.
func TestPackagesBySlowness(t *testing.T) {
	s, err := read(strings.NewReader(events(
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
