package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles, Deps   []string
	Module          struct{ Path string }
}

// goList runs `go list` in dir.
func goList(ctx context.Context, dir string, args ...string) (all []*listed, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Deps,Module"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		p := new(listed)
		if err = d.Decode(p); err == nil {
			all = append(all, p)
		}
	}
	if err != io.EOF {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(args, " "), err)
	}
	return all, nil
}

// importers returns the packages of `go list -test` whose tests link the package
// of: of itself first, then those with fewer dependencies.
func importers(all []*listed, of string) (out []*listed) {
	packages, deps := map[string]*listed{}, map[*listed]int{}
	for _, p := range all {
		packages[p.ImportPath] = p
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if isTest && slices.ContainsFunc(p.Deps, func(dep string) bool { return dep == of || strings.HasPrefix(dep, of+" [") }) {
			out = append(out, packages[path])
			if path != of {
				deps[packages[path]] = len(p.Deps)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *listed) int { return deps[a] - deps[b] })
	return out
}

// packageMutants returns every mutant of a package of the module at root, those
// of generated files aside.
func packageMutants(root string, p *listed) (all []*mutant, err error) {
	folder, err := filepath.Rel(root, p.Dir)
	for _, name := range p.GoFiles {
		text, rerr := os.ReadFile(filepath.Join(p.Dir, name))
		f, perr := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err = errors.Join(err, rerr, perr); err != nil {
			return nil, err
		}
		if ast.IsGenerated(f) {
			continue
		}
		for _, m := range mutants(f, string(text)) {
			m.pkg, m.in, m.file = p.ImportPath, folder, path.Join(folder, name)
			all = append(all, m)
		}
	}
	return all, nil
}

// draw returns a function that yields the mutants of a package one by one, then
// nil: the operators take turns, and each line is drawn once. The seed and the
// package's path set the order.
func draw(all []*mutant, pkg string, seed uint64) func() *mutant {
	h := fnv.New64a()
	_, _ = io.WriteString(h, pkg)
	queues := map[string][]*mutant{}
	for _, i := range rand.New(rand.NewPCG(seed, h.Sum64())).Perm(len(all)) {
		queues[all[i].op] = append(queues[all[i].op], all[i])
	}
	taken, turn := map[string]bool{}, 0
	return func() *mutant {
		for range operators {
			op := operators[turn%len(operators)]
			turn++
			for len(queues[op]) > 0 {
				m := queues[op][0]
				queues[op] = queues[op][1:]
				if at := fmt.Sprint(m.file, m.line); !taken[at] {
					taken[at] = true
					return m
				}
			}
		}
		return nil
	}
}

// apply returns the mutated text of a file.
func (m *mutant) apply(src string) string { return src[:m.from] + m.text + src[m.to:] }

// overlay writes a mutant into dir, and a list for -overlay, whose name it returns.
func (m *mutant) overlay(root, dir string) (string, error) {
	file := filepath.Join(root, m.file)
	src, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	to, name := filepath.Join(dir, path.Base(m.file)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: to}})
	return name, errors.Join(err, os.WriteFile(to, []byte(m.apply(string(src))), 0o600), os.WriteFile(name, list, 0o600))
}

//go:embed survivors.txt
var survivorsText string

//go:embed hand.txt
var handText string

// entry is a mutant of hand.txt or survivors.txt. Its lines there are
//
//	FILE NAME [FOLDER]
//	- text before
//	+ text after
//	  reason
//
// with an empty line between entries. NAME is a function in survivors.txt, and a
// pattern of tests in hand.txt, whose package is in FOLDER (absent: that of FILE).
// Lines that start with # are comments.
type entry struct{ file, name, in, from, to, reason string }

// parseEntries reads a list of entries.
func parseEntries(list, text string) (all []entry, err error) {
	for block := range strings.SplitSeq(text, "\n\n") {
		var e entry
		var head string
		texts := map[byte]*string{'-': &e.from, '+': &e.to, ' ': &e.reason}
		for l := range strings.SplitSeq(strings.Trim(block, "\n"), "\n") {
			if l == "" || l[0] == '#' {
				continue
			}
			if to := texts[l[0]]; to != nil {
				*to += strings.TrimPrefix(l[1:], " ") + "\n"
			} else {
				head += l
			}
		}
		for _, t := range texts {
			*t = strings.TrimSuffix(*t, "\n")
		}
		f := strings.Fields(head)
		switch {
		case len(f) == 2 || len(f) == 3:
			e.file, e.name, e.in = f[0], f[1], append(f, path.Dir(f[0]))[2]
			all = append(all, e)
		case head+e.from+e.to+e.reason != "":
			return nil, fmt.Errorf("%s: %q is not FILE NAME [FOLDER] and lines that start with -, + and a space", list, block)
		}
	}
	return all, nil
}

// judges reports whether an entry of survivors.txt is about a mutant.
func (e *entry) judges(m *mutant) bool {
	return e.file == m.file && e.name == m.function && e.from == m.before && e.to == m.after
}

// mutant returns the mutant of an entry of hand.txt.
func (e *entry) mutant(root string) (*mutant, error) {
	src, err := os.ReadFile(filepath.Join(root, e.file))
	if n := bytes.Count(src, []byte(e.from)); err == nil && n != 1 {
		err = fmt.Errorf("%s has %q %d times, and a mutant needs it once", e.file, e.from, n)
	}
	if err != nil {
		return nil, fmt.Errorf("hand.txt: %w", err)
	}
	at := bytes.Index(src, []byte(e.from))
	m := &mutant{file: e.file, op: "by hand", from: at, to: at + len(e.from), text: e.to, in: e.in}
	m.test = "^" + strings.NewReplacer("|", "$|^", "/", "$/^").Replace(e.name) + "$"
	m.show(string(src))
	return m, nil
}
