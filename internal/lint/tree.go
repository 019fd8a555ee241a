package lint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits are the rules for files.
var Limits = struct {
	// Lines is the length of a source file that was not generated.
	Lines int
	// Measured are the endings of files whose length counts, Read those of files
	// in which marks are looked for, beside them.
	Measured, Read []string
	// Marks are words that postpone work.
	Marks *regexp.Regexp
}{
	Lines:    500,
	Measured: []string{".go", ".c", ".h", ".cu", ".cuh"},
	Read:     []string{".s", ".sh", ".py", ".md", ".yaml", ".yml", ".mod", ".ci/run"},
	Marks:    regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`),
}

// generated is the line by which a file says that a program wrote it.
// Source: https://go.dev/s/generatedcode
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// CheckFile returns what the file with that name and content does against
// Limits, one sentence each.
func CheckFile(name string, content []byte) []string {
	ends := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	measured := slices.ContainsFunc(Limits.Measured, ends)
	if !measured && !slices.ContainsFunc(Limits.Read, ends) {
		return nil
	}
	var found []string
	if lines := countLines(content); measured && lines > Limits.Lines && !generated.Match(content) {
		found = append(found, fmt.Sprintf("%s has %d lines, more than %d", name, lines, Limits.Lines))
	}
	for i, line := range bytes.Split(content, []byte("\n")) {
		if mark := Limits.Marks.Find(line); mark != nil {
			found = append(found, fmt.Sprintf("%s:%d says %s", name, i+1, mark))
		}
	}
	return found
}

// countLines counts a last line without its end, too.
func countLines(content []byte) int {
	n := bytes.Count(content, []byte("\n"))
	if len(content) > 0 && content[len(content)-1] != '\n' {
		n++
	}
	return n
}

// CheckDocs returns the packages that have no doc.go, one sentence each.
func CheckDocs(pkgs []Package) []string {
	var found []string
	for _, p := range pkgs {
		if !slices.Contains(p.Files, "doc.go") {
			found = append(found, fmt.Sprintf("%s has no doc.go", path.Join(".", p.Path)))
		}
	}
	return found
}
