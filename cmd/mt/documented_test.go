package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// documented matches a block of a page that starts with an mt plan command, and captures the command and its output.
var documented = regexp.MustCompile("(?s)```\n\\$ mt (plan [^\n]*)\n(.*?)\n```")

// TestDocumentedPlans: the plans in the README and on pages of docs equal the output of mt. A line of … matches any lines. Plans that
// need other files are skipped. Only one in four plans for several hosts is tested, since these take a minute.
func TestDocumentedPlans(t *testing.T) {
	testkit.LongOnly(t)
	pages := append(testkit.Must(filepath.Glob("../../docs/*.md"))(t), "../../README.md")
	found := 0
	for _, page := range pages {
		raw := testkit.Must(os.ReadFile(page))(t)
		for _, block := range documented.FindAllStringSubmatch(string(raw), -1) {
			command, want := block[1], strings.Split(block[2], "\n")
			if strings.Contains(command, "./") {
				continue
			}
			found++
			t.Run(filepath.Base(page)+"/"+command, func(t *testing.T) {
				if strings.Contains(command, "--hosts") {
					testkit.Drawn(t, 4)
				}
				code, stdout, stderr := mt(t, "", strings.Fields(command)...)
				if code != exitDone {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				got := strings.Split(stderr+stdout, "\n")
				if line := notPrinted(got, want); line != "" {
					t.Errorf("the page has a line that is not printed there: %q\n%s", line, strings.Join(got, "\n"))
				}
			})
		}
	}
	if found < 4 {
		t.Errorf("%d plans are documented, want at least 4, of devices, planning, scaling and the README", found)
	}
}

// notPrinted compares the documented output want with the actual output got. It returns the first
// line of want that got does not have at its place; "" if there is none. A line of … in want
// matches any lines.
func notPrinted(got, want []string) string {
	trim := func(line string) string { return strings.TrimRight(line, " ") }
	anywhere := false
	for _, line := range want {
		if line == "…" {
			anywhere = true
			continue
		}
		at := slices.IndexFunc(got, func(s string) bool { return trim(s) == trim(line) })
		if at < 0 || at > 0 && !anywhere {
			return line
		}
		got, anywhere = got[at+1:], false
	}
	if !anywhere && len(got) > 0 && strings.Join(got, "") != "" {
		return "(the end, before) " + got[0]
	}
	return ""
}

// TestNotPrinted: lines are compared in order, and … matches any number of lines.
func TestNotPrinted(t *testing.T) {
	got := []string{"a", "b ", "c", "d", ""}
	for want, line := range map[string]string{"a b c d": "", "a … d": "", "… c d": "", "a b …": "", "…": "", "a c d": "c", "b c d": "b", "a … c e": "e", "a b": "(the end, before) c", "… d c": "c"} {
		if at := notPrinted(slices.Clone(got), strings.Fields(want)); at != line {
			t.Errorf("%s: %q, want %q", want, at, line)
		}
	}
}
