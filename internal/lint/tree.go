package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits are the rules for single files: how long a function may be, and which words may not occur.
var Limits = struct {
	// Lines is the maximum length of a Go function, except in tests and generated files.
	Lines int
	// Read lists the endings of the names of files in which CheckFile searches for Marks.
	Read []string
	// Marks matches the words with which programmers mark work that they postpone. No file may have one.
	Marks *regexp.Regexp
}{
	Lines: 70,
	Read:  []string{".go", ".c", ".h", ".cu", ".cuh", ".s", ".sh", ".py", ".md", ".yaml", ".yml", ".mod", ".ci/run"},
	Marks: regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`),
}

// CheckFile returns the violations of Limits in a file, one sentence each.
func CheckFile(name string, content []byte) []string {
	if !slices.ContainsFunc(Limits.Read, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
		return nil
	}
	found := checkFunctions(name, content)
	for i, line := range bytes.Split(content, []byte("\n")) {
		if mark := Limits.Marks.Find(line); mark != nil {
			found = append(found, fmt.Sprintf("%s:%d says %s", name, i+1, mark))
		}
	}
	return found
}

// checkFunctions returns the functions of a Go file that are too long. Tests and generated files are exempt.
func checkFunctions(name string, content []byte) (found []string) {
	if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	if ast.IsGenerated(file) {
		return nil
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from, to := files.Position(f.Pos()), files.Position(f.End())
		if n := to.Line - from.Line + 1; n > Limits.Lines {
			found = append(found, fmt.Sprintf("%s:%d: %s has %d lines, more than %d", name, from.Line, f.Name.Name, n, Limits.Lines))
		}
	}
	return found
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
