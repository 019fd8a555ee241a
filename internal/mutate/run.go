package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// runner runs tests of the module at root.
type runner struct {
	root, scratch string
	timeout       time.Duration // of a test on a broken program
}

// wholeTimeout is how long the named tests of a package may take together on the
// program as it is. A test that looks at many cases is slow only there: on a
// broken program it ends with the first that fails.
const wholeTimeout = 15 * time.Minute

// verdict is what a test said of a broken program.
type verdict string

// The verdicts. A program that does not compile shows nothing of the tests: such
// a mutation is a mistake in the list.
const (
	noticed  verdict = "noticed"
	hung     verdict = "hung"
	survived verdict = "SURVIVED"
	invalid  verdict = "DOES NOT COMPILE"
)

// runAll runs the chosen mutations one after the other. The error says how many
// no test noticed.
func runAll(ctx context.Context, root string, chosen []mutation, timeout time.Duration) error {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	r := &runner{root: root, scratch: scratch, timeout: timeout}
	if err := r.wholeProgramPasses(ctx, chosen); err != nil {
		return err
	}
	began, same, bad := time.Now(), 0, []string{}
	for i, m := range chosen {
		if m.same != "" {
			same++
			continue
		}
		start := time.Now()
		v, line, output, err := r.try(ctx, m)
		if err != nil {
			return err
		}
		where := fmt.Sprintf("%s:%d", m.file, line)
		fmt.Printf("%3d/%d  %-8s %5.1f s  %s  (%s in %s)\n", i+1, len(chosen), v, time.Since(start).Seconds(), where, m.test, m.in)
		if v == survived {
			output = "" // it passed
		}
		if v == survived || v == invalid {
			bad = append(bad, fmt.Sprintf("%s: %s\n%s\n%s", where, v, m.show(), output))
		}
	}
	fmt.Printf("%d noticed, %d not, %d that change nothing, in %s\n", len(chosen)-len(bad)-same, len(bad), same, time.Since(began).Round(time.Second))
	if len(bad) > 0 {
		return fmt.Errorf("%d mutations were not noticed:\n%s", len(bad), strings.Join(bad, "\n"))
	}
	return nil
}

// wholeProgramPasses runs the named tests on the program as it is: one that fails
// or is skipped there notices nothing.
func (r *runner) wholeProgramPasses(ctx context.Context, chosen []mutation) error {
	tests := map[string][]string{} // patterns by package
	var packages []string
	for _, m := range chosen {
		if m.same != "" {
			continue
		}
		if tests[m.in] == nil {
			packages = append(packages, m.in)
		}
		if !slices.Contains(tests[m.in], m.test) {
			tests[m.in] = append(tests[m.in], m.test)
		}
	}
	for _, p := range packages {
		start := time.Now()
		v, output, err := r.test(ctx, p, strings.Join(tests[p], "|"), "", wholeTimeout)
		switch skipped := skippedTest.FindStringSubmatch(output); {
		case err != nil:
			return err
		case v != survived:
			return fmt.Errorf("the tests of %s fail without any mutation:\n%s", p, output)
		case skipped != nil:
			return fmt.Errorf("%s in %s skips itself here, and would notice nothing: name another in the list\n%s", skipped[1], p, output)
		}
		fmt.Printf("whole program: %s passes in %.1f s\n", p, time.Since(start).Seconds())
	}
	return nil
}

// skippedTest is a whole test that go test -v says was skipped.
var skippedTest = regexp.MustCompile(`(?m)^--- SKIP: (\w+) `)

// try runs the test of m on the program that m breaks.
func (r *runner) try(ctx context.Context, m mutation) (v verdict, line int, output string, err error) {
	text, line, err := m.apply(r.root)
	if err != nil {
		return "", 0, "", err
	}
	to := filepath.Join(r.scratch, "broken-"+filepath.Base(m.file))
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return "", 0, "", err
	}
	overlay := filepath.Join(r.scratch, "overlay.json")
	file := filepath.Join(r.root, filepath.FromSlash(m.file))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: to}})
	if err != nil {
		return "", 0, "", err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", 0, "", err
	}
	v, output, err = r.test(ctx, m.in, m.test, overlay, r.timeout)
	return v, line, output, err
}

// test builds the tests of a package, with the files that overlay names replaced,
// and runs those that pattern names, for at most timeout.
func (r *runner) test(ctx context.Context, pkg, pattern, overlay string, timeout time.Duration) (verdict, string, error) {
	binary := filepath.Join(r.scratch, "broken.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "-overlay", overlay, "-ldflags=-s -w", "./"+pkg) // nobody debugs it
	build.Dir = r.root
	if out, err := build.CombinedOutput(); err != nil {
		return r.failed(ctx, invalid, out, err)
	}
	run := exec.CommandContext(ctx, binary, "-test.run", anchored(pattern), "-test.timeout", timeout.String(), "-test.v")
	run.Env = append(os.Environ(), "MT_LONG=1") // what notices may be one of the long tests
	run.Dir = filepath.Join(r.root, filepath.FromSlash(pkg))
	out, err := run.CombinedOutput()
	switch {
	case err == nil:
		return survived, string(out), nil
	case strings.Contains(string(out), "panic: test timed out after"):
		return r.failed(ctx, hung, out, err)
	}
	return r.failed(ctx, noticed, out, err)
}

// failed is v for a command that ran and failed, else the error of one that could
// not run or was interrupted.
func (r *runner) failed(ctx context.Context, v verdict, out []byte, err error) (verdict, string, error) {
	if ctx.Err() != nil {
		return "", "", errors.New("interrupted")
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", "", err
	}
	return v, string(out), nil
}

// anchored makes every element of a pattern match whole names.
func anchored(pattern string) string {
	var out []string
	for _, one := range strings.Split(pattern, "|") {
		var parts []string
		for _, p := range strings.Split(one, "/") {
			parts = append(parts, "^"+p+"$")
		}
		out = append(out, strings.Join(parts, "/"))
	}
	return strings.Join(out, "|")
}
