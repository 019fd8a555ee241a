package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Package describes a package of the main module.
type Package struct {
	// Path is the import path without the module's: "device/cpu", "" for the
	// root of the module.
	Path string
	// Imports has the imports of the package's files, on any platform and under any build tag except emulatorTag.
	// TestImports has the imports of its tests and of files with that tag, which no shipped binary contains. Imports of
	// this module have the form of Path with a leading "./".
	Imports, TestImports []string
	// Files has the names of all its files, tests included.
	Files []string
}

// listed has the fields that Packages reads of an object that `go list -json` prints.
type listed struct {
	Dir, ImportPath string
	Module          struct{ Path string }

	GoFiles, CgoFiles, IgnoredGoFiles  []string
	TestGoFiles, XTestGoFiles          []string
	Imports, TestImports, XTestImports []string
	Error                              *struct{ Err string }
}

// Packages runs `go list -json ./...` in root, the root of a module.
func Packages(root string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-e", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w%s", root, err, stderrOf(err))
	}
	return decode(strings.NewReader(string(out)))
}

// decode reads the objects that go list prints into Packages. It adds the imports of files for another platform or
// build tag, which go list ignores.
func decode(r io.Reader) ([]Package, error) {
	var pkgs []Package
	for d := json.NewDecoder(r); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p, err := l.pack()
		if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
}

// pack converts l, an object that go list has printed, to a Package.
func (l *listed) pack() (Package, error) {
	module := l.Module.Path
	p := Package{Path: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, module), "/")}
	for _, names := range [][]string{l.GoFiles, l.CgoFiles, l.IgnoredGoFiles, l.TestGoFiles, l.XTestGoFiles} {
		p.Files = append(p.Files, names...)
	}
	p.Imports = l.Imports
	p.TestImports = append(append([]string(nil), l.TestImports...), l.XTestImports...)
	for _, name := range l.IgnoredGoFiles {
		imports, tagged, err := importsOf(filepath.Join(l.Dir, name))
		if err != nil {
			return Package{}, err
		}
		if strings.HasSuffix(name, "_test.go") || tagged {
			p.TestImports = append(p.TestImports, imports...)
		} else {
			p.Imports = append(p.Imports, imports...)
		}
	}
	p.Imports = shorten(p.Imports, module)
	p.TestImports = shorten(p.TestImports, module)
	return p, nil
}

// emulatorTag is the build tag of a binary that emulates a GPU.
const emulatorTag = "emu"

// importsOf returns the import paths of a Go file. tagged says that only builds with emulatorTag contain the file.
func importsOf(file string) (_ []string, tagged bool, _ error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return nil, false, fmt.Errorf("imports of %s: %w", file, err)
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			tagged = tagged || c.Pos() < f.Package && c.Text == "//go:build "+emulatorTag
		}
	}
	var paths []string
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, false, fmt.Errorf("imports of %s: %s: %w", file, spec.Path.Value, err)
		}
		paths = append(paths, path)
	}
	return paths, tagged, nil
}

// shorten returns paths without duplicates. In paths of this module, "." replaces the module's path (the argument
// module).
func shorten(paths []string, module string) []string {
	var out []string
	seen := map[string]bool{}
	for _, path := range paths {
		if own, ok := strings.CutPrefix(path, module+"/"); ok {
			path = "./" + own
		}
		if !seen[path] {
			seen[path] = true
			out = append(out, path)
		}
	}
	return out
}

// Tree lists the files of the git work tree at root, relative to root: tracked files and untracked files that are not
// ignored.
func Tree(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w%s", root, err, stderrOf(err))
	}
	var files []string
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		// A file deleted from the work tree is still in the index.
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files, nil
}

// stderrOf returns what a command that failed with err has written to standard error, ready to be appended to a
// message; "" if nothing.
func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}
