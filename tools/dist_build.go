package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platform is a target of a build.
type platform struct {
	arch   string // as GOARCH
	level  string // environment variable for Go's compiler with the architecture's oldest instruction set
	python string // the architecture's name in a wheel's tag
	loader string // path of the dynamic loader that the binary requests
}

// platforms lists all targets. The instruction set in level applies to compiled Go code. mt's
// assembly uses newer instructions after a check at run time that the processor has them.
var platforms = []platform{
	{"amd64", "GOAMD64=v1", "x86_64", "/lib64/ld-linux-x86-64.so.2"},
	{"arm64", "GOARM64=v8.0", "aarch64", "/lib/ld-linux-aarch64.so.1"},
}

// platformOf returns the platform of an architecture; false if there is none.
func platformOf(arch string) (platform, bool) {
	i := slices.IndexFunc(platforms, func(p platform) bool { return p.arch == arch })
	if i < 0 {
		return platform{}, false
	}
	return platforms[i], true
}

// build builds mt from the module in root and writes the binary to the file to. It overrides the environment's
// variables for builds, so the bytes depend only on the commit and the Go version. cache is the folder of Go's build
// cache; "": the user's cache.
func build(ctx context.Context, root string, p platform, cache, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	env := []string{"GOOS=linux", "GOARCH=" + p.arch, p.level, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GOFIPS140=off"}
	if cache != "" {
		env = append(env, "GOCACHE="+cache)
	}
	_, err = output(ctx, root, env, "go", "build", "-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags=-s -w", "-o", to, "./cmd/mt")
	return err
}

// sameAgain clones the commit into another folder, builds mt there with an empty cache, and returns an error if the
// result differs from the file bin.
func (d *dist) sameAgain(ctx context.Context, p platform, bin string) (err error) {
	elsewhere := filepath.Join(d.scratch, "elsewhere")
	defer func() { err = errors.Join(err, os.RemoveAll(elsewhere)) }() // it has half a gigabyte
	clone, again := filepath.Join(elsewhere, "clone"), filepath.Join(elsewhere, "mt")
	if _, err := output(ctx, d.root, nil, "git", "clone", "--quiet", "--no-hardlinks", d.root, clone); err != nil {
		return err
	}
	if err := build(ctx, clone, p, filepath.Join(elsewhere, "cache"), again); err != nil {
		return err
	}
	return same(bin, again)
}

// same returns an error if two files differ.
func same(a, b string) error {
	first, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(first, second) {
		return fmt.Errorf("two builds of one commit differ: %s has SHA-256 %x, %s %x", a, sha256.Sum256(first), b, sha256.Sum256(second))
	}
	return nil
}

// mtBinary is a binary of mt with its build information.
type mtBinary struct {
	data []byte
	info *buildinfo.BuildInfo
	made time.Time // time of the commit, in UTC
}

// readBinary reads a binary and the build information in it.
func readBinary(path string) (*mtBinary, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	b := &mtBinary{data: data, info: info}
	b.made, err = time.Parse(time.RFC3339, b.setting("vcs.time"))
	if err != nil {
		return nil, fmt.Errorf("%s has no commit in it: dist builds from a git clone: %w", path, err)
	}
	return b, nil
}

// setting returns the build setting with the given key, which Go has recorded in the binary; "" if there is none.
func (b *mtBinary) setting(key string) string {
	for _, s := range b.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// version returns the version that Go derived from git, from a tag or from the commit, without the leading v.
func (b *mtBinary) version() string { return strings.TrimPrefix(b.info.Main.Version, "v") }

// oldest is the oldest glibc version on which mt runs, 2.28, as the wheel's tag manylinux_2_28 promises.
var oldest = [2]int{2, 28}

// libraries lists the libraries that the binary may link. All are parts of every glibc. The binary opens other
// libraries at run time, if they exist.
var libraries = []string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}

// runsOn returns an error if the binary would not run on every machine of platform p. It must not need another loader,
// a library that is not in libraries, or a symbol of a glibc newer than oldest.
func (b *mtBinary) runsOn(p platform) error {
	f, err := elf.NewFile(bytes.NewReader(b.data))
	if err != nil {
		return err
	}
	needs, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, lib := range needs {
		if !slices.Contains(libraries, lib) {
			return fmt.Errorf("the binary needs %s, and may need %s alone", lib, strings.Join(libraries, ", "))
		}
	}
	loader, err := interpreter(f)
	if err != nil {
		return err
	}
	if loader != p.loader {
		return fmt.Errorf("the binary asks for the loader %q, not %s", loader, p.loader)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if newer(s.Version) {
			return fmt.Errorf("the binary needs %s of %s, and glibc %d.%d must do", s.Name, s.Version, oldest[0], oldest[1])
		}
	}
	return nil
}

// interpreter returns the path of the loader that the binary f requests; "" for a static binary.
func interpreter(f *elf.File) (string, error) {
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			name, err := io.ReadAll(part.Open())
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}

// newer reports whether a symbol version, such as GLIBC_2.34, is newer than oldest. Symbols that the package purego
// requests have no version, so the loader binds them to any.
func newer(version string) bool {
	number, glibc := strings.CutPrefix(version, "GLIBC_")
	if !glibc {
		return version != ""
	}
	parts := strings.Split(number, ".")
	for i, least := range oldest {
		if i >= len(parts) {
			return false
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil || n > least {
			return true // GLIBC_PRIVATE belongs to one glibc version
		}
		if n < least {
			return false
		}
	}
	return false
}

// extras returns the files that are the same on every platform: manual pages, shell completions and examples. To get
// the manual pages and completions, it builds mt for this machine and runs it.
func (d *dist) extras(ctx context.Context) ([]file, error) {
	here := filepath.Join(d.scratch, "mt-here")
	if p, ok := platformOf(runtime.GOARCH); ok && runtime.GOOS == "linux" {
		if err := build(ctx, d.root, p, "", here); err != nil {
			return nil, err
		}
	} else if _, err := output(ctx, d.root, nil, "go", "build", "-trimpath", "-buildvcs=true", "-o", here, "./cmd/mt"); err != nil {
		return nil, err
	}
	pages := filepath.Join(d.scratch, "man")
	if _, err := output(ctx, d.root, nil, here, "man", pages); err != nil {
		return nil, err
	}
	out, err := filesUnder(pages, "share/man/man1")
	if err != nil {
		return nil, err
	}
	for shell, name := range map[string]string{"bash": "share/bash-completion/completions/mt", "zsh": "share/zsh/site-functions/_mt",
		"fish": "share/fish/vendor_completions.d/mt.fish"} {
		script, err := output(ctx, d.root, nil, here, "completion", shell)
		if err != nil {
			return nil, err
		}
		out = append(out, file{name: name, data: []byte(script + "\n")})
	}
	examples, err := filesUnder(filepath.Join(d.root, "examples"), "share/mt/examples")
	for _, f := range examples {
		if !strings.HasSuffix(f.name, ".go") { // without the program that generates the example data
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return out, err
}
