package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath, Dir, BuildID string
	GoFiles, Deps            []string
	Module                   struct{ Path string }
}

// goList runs `go list` in dir.
func goList(ctx context.Context, dir string, args ...string) (all []*listed, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,BuildID,GoFiles,Deps,Module"}, args...)...)
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

// importers returns the packages of all (from `go list -test`) whose tests link the package with import path `of`. This
// package itself comes first. The others follow by their number of dependencies, smallest first.
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

// packageMutants returns all mutants of package p, except in generated files. root is the module's folder.
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

// draw puts the mutants of a package into the order in which they are tried. The operators take turns, and each line
// occurs once. seed and the package's path pkg determine the order.
func draw(all []*mutant, pkg string, seed uint64) (drawn []*mutant) {
	queues, taken := map[string][]*mutant{}, map[string]bool{}
	for _, i := range rand.New(rand.NewPCG(seed, uint64(crc32.ChecksumIEEE([]byte(pkg))))).Perm(len(all)) {
		queues[all[i].op] = append(queues[all[i].op], all[i])
	}
	for turn, left := 0, len(all); left > 0; turn++ {
		op, found := operators[turn%len(operators)], false
		for len(queues[op]) > 0 && !found {
			m := queues[op][0]
			at := fmt.Sprint(m.file, m.line)
			if queues[op], found = queues[op][1:], !taken[at]; found {
				drawn, taken[at] = append(drawn, m), true
			}
			left--
		}
	}
	return drawn
}

// apply returns src, the text of the mutant's file, with the change.
func (m *mutant) apply(src string) string { return src[:m.from] + m.text + src[m.to:] }

// overlay writes the changed file into dir, and returns the flag that makes the go command use it instead of the file
// in root.
func (m *mutant) overlay(root, dir string) (string, error) {
	file := filepath.Join(root, m.file)
	src, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	to, name := filepath.Join(dir, path.Base(m.file)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: to}})
	return "-overlay=" + name, errors.Join(err, os.WriteFile(to, []byte(m.apply(string(src))), 0o600), os.WriteFile(name, list, 0o600))
}

//go:embed mutate/survivors.txt
var survivorsText string

//go:embed mutate/hand.txt
var handText string

// entry is a mutant as written in hand.txt or survivors.txt. An entry has these lines:
//
//	FILE NAME [FOLDER]
//	- text before
//	+ text after
//	  reason
//
// NAME is a function in survivors.txt, and a pattern of tests in hand.txt. FOLDER is the folder of the tests; without
// FOLDER it is the folder of FILE. Lines that start with # are comments.
type entry struct{ file, name, in, from, to, reason string }

var (
	comment = regexp.MustCompile(`(?m)^#.*\n`)
	form    = regexp.MustCompile(`(?m)^(\S+) (\S+)(?: (\S+))?\n((?:-.*\n)+)((?:\+.*\n)+)((?:  .*\n)*)`)
	mark    = regexp.MustCompile(`(?m)^(- ?|\+ ?|  )`)
)

// parseEntries reads the entries in text, the content of the file list.
func parseEntries(list, text string) (all []entry, err error) {
	text = comment.ReplaceAllString(text, "")
	for _, m := range form.FindAllStringSubmatch(text, -1) {
		for i := 4; i < len(m); i++ {
			m[i] = mark.ReplaceAllString(strings.TrimSuffix(m[i], "\n"), "")
		}
		all = append(all, entry{m[1], m[2], cmp.Or(m[3], path.Dir(m[1])), m[4], m[5], m[6]})
	}
	if rest := strings.TrimSpace(form.ReplaceAllString(text, "")); rest != "" {
		err = fmt.Errorf("%s: %q is no entry: FILE NAME [FOLDER], then lines that start with -, + and two spaces", list, rest)
	}
	return all, err
}

// judges reports whether e, an entry of survivors.txt, describes the mutant m.
func (e *entry) judges(m *mutant) bool {
	return e.file == m.file && e.name == m.function && e.from == m.before && e.to == m.after
}

// mutant returns the mutant that e, an entry of hand.txt, describes. It returns an error unless the text before occurs
// exactly once in the file.
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
