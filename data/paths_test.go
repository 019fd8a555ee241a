package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is a directory with the files that these tests need; sub/loop is a link back up.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"a.go", "b.txt", "sub/a.go", "sub/deep/er/c.go", "sub/d.go/inside.go", ".hidden.go", ".git/x.go", "sub/.cfg/y.go", "we[i]rd.txt", "z/a.go",
	} {
		write(t, dir, name, name)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "sub", "loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "a.go"), filepath.Join(dir, "sub", "link.go")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "sub", "dangling.go")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFindSources(t *testing.T) {
	dir := tree(t)
	t.Setenv("MT_TEST_TREE", dir)
	tests := []struct {
		name   string
		paths  []string
		want   []string
		hidden int
	}{
		{"file", []string{"b.txt"}, []string{"b.txt"}, 0},
		{"absolute", []string{filepath.Join(dir, "b.txt")}, []string{"b.txt"}, 0},
		{"hidden file by name", []string{".hidden.go"}, []string{".hidden.go"}, 0},
		{"variable", []string{"${MT_TEST_TREE}/a.go"}, []string{"a.go"}, 0},
		{"directory", []string{"sub"}, []string{"sub/a.go", "sub/d.go/inside.go", "sub/deep/er/c.go", "sub/link.go"}, 1},
		{"star", []string{"*.go"}, []string{"a.go"}, 0},
		{"star over directories", []string{"*/a.go"}, []string{"sub/a.go", "z/a.go"}, 0},
		{"question mark and class", []string{"?.[gh]o"}, []string{"a.go"}, 0},
		{"hidden by pattern", []string{".*.go"}, []string{".hidden.go"}, 0},
		{"any depth", []string{"**/*.go"}, []string{"a.go", "sub/a.go", "sub/d.go/inside.go", "sub/deep/er/c.go", "sub/link.go", "z/a.go"}, 0},
		{"any depth within", []string{"**/deep/**/c.go"}, []string{"sub/deep/er/c.go"}, 0},
		{"any depth twice", []string{"**/**/c.go"}, []string{"sub/deep/er/c.go"}, 0},
		{"any depth at the end", []string{"sub/deep/**"}, []string{"sub/deep/er/c.go"}, 0},
		{"through a link", []string{"sub/lo*/b.txt"}, []string{"sub/loop/b.txt"}, 0},
		{"a name like a pattern", []string{"we[i]rd.txt"}, []string{"we[i]rd.txt"}, 0},
		{"in the order given, each once", []string{"z/a.go", "a.go", "z", "b.txt"}, []string{"z/a.go", "a.go", "b.txt"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sources, hidden, err := findSources(&Spec{Paths: tt.paths, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range sources {
				rel, err := filepath.Rel(dir, s.path)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rel)
				if info, err := os.Stat(s.path); err != nil || info.Size() != s.size || info.ModTime().UnixNano() != s.mtime {
					t.Errorf("%s: size %d, time %d; stat says %v, %v", rel, s.size, s.mtime, info, err)
				}
			}
			if !slices.Equal(got, tt.want) || hidden != tt.hidden {
				t.Errorf("found %q, %d hidden; want %q, %d", got, hidden, tt.want, tt.hidden)
			}
		})
	}
}

func TestFindSourcesErrors(t *testing.T) {
	dir := tree(t)
	if err := os.MkdirAll(filepath.Join(dir, "empty", ".only"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path string
		want string
	}{
		{"none.txt", "no such file or directory: none.txt (looked for " + filepath.Join(dir, "none.txt")},
		{"*.rs", "no file matches " + filepath.Join(dir, "*.rs")},
		{"none/**/*.go", "no file matches"},
		{"[.go", "syntax error in pattern"},
		{"empty", "holds no files"},
		{"", "name is empty"},
		{"${MT_TEST_NOT_SET}/a.go", "variable MT_TEST_NOT_SET is not set"},
		{"/dev/null", "/dev/null is a device"},
	}
	for _, tt := range tests {
		_, _, err := findSources(&Spec{Paths: []string{tt.path}, Dir: dir})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one that says %q", tt.path, err, tt.want)
		}
	}
}

func TestExpandVarsFindsGo(t *testing.T) {
	t.Setenv("GOROOT", "/from/the/environment")
	if got, err := ExpandVars("${GOROOT}/src"); err != nil || got != "/from/the/environment/src" {
		t.Errorf("GOROOT from the environment: %q, %v", got, err)
	}
	t.Setenv("GOROOT", "")
	got, err := ExpandVars("${GOROOT}/src/fmt/print.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(got); err != nil {
		t.Errorf("GOROOT by asking go: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = ExpandVars("${GOROOT}/src")
	wantError(t, err, "GOROOT is not set", "export GOROOT")
}

// TestGorootWithoutGoEnv: where `go env` gives nothing, GOROOT is the directory above the go command.
func TestGorootWithoutGoEnv(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	write(t, root, "src/fmt/print.go", "package fmt")
	write(t, root, "bin/go", "#!/bin/sh\nexit 1\n")
	if err := os.Chmod(filepath.Join(root, "bin", "go"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "bin", "go"), filepath.Join(bin, "go")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", bin)
	want, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ExpandVars("${GOROOT}"); err != nil || got != want {
		t.Errorf("GOROOT is %q, %v, want %q", got, err, want)
	}
}
