package faultio

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

//go:embed c/faultio.c
var source string

//go:embed c/calls.h
var calls string

// The exit codes by which the tracer reports about itself.
const (
	codeFailed    = 125
	codeForbidden = 126
)

// Of says which calls are numbered.
type Of string

const (
	All     Of = "all"     // every call on a path below the directory
	Changes Of = "changes" // those that change a file or a directory, or sync it
	Writes  Of = "writes"  // those that write bytes
	Nothing Of = "nothing" // none
)

// Fault is what happens to a call.
type Fault string

const (
	None       Fault = ""
	EIO        Fault = "fail:EIO"         // the call fails once
	ENOSPC     Fault = "fail-from:ENOSPC" // this call and all numbered after it fail
	Short      Fault = "short"            // half of the bytes are written
	KillBefore Fault = "kill-before"      // SIGKILL, and the call is not made
	KillAmid   Fault = "kill-amid"        // SIGKILL once half of the bytes are written
	KillAfter  Fault = "kill-after"       // SIGKILL once the call is made
)

// args are the tracer's arguments for a fault at call n.
func (f Fault) args(n int) []string {
	if f == None {
		return nil
	}
	option, errno, _ := strings.Cut(string(f), ":")
	if errno != "" {
		errno = ":" + errno
	}
	return []string{"--" + option, strconv.Itoa(n) + errno}
}

// Call is a numbered system call.
type Call struct {
	N           int    // from 1
	Name        string // such as pwrite64
	Path, Path2 string // Path2 is where a rename or a link leads
	Spoiled     bool
}

// String is the call as a line of a log.
func (c Call) String() string {
	return strings.TrimRight(fmt.Sprintf("call %d, %s %s %s", c.N, c.Name, c.Path, c.Path2), " ")
}

// Tracer runs commands. Their syncs succeed and are not made: a fault ends a process, and what a
// process has written is there for the next one.
type Tracer struct{ program string }

// New compiles the tracer. The test is skipped where it cannot be compiled, or
// where tracing is not possible.
func New(t testing.TB) *Tracer {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("system calls are traced on Linux on amd64 only")
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"faultio.c": source, "calls.h": calls} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr := &Tracer{program: filepath.Join(dir, "faultio")}
	cmd := exec.Command(cc, "-O1", "-Wall", "-Wextra", "-Werror", "-o", tr.program, filepath.Join(dir, "faultio.c"))
	if out, err := cmd.CombinedOutput(); err != nil {
		if _, headers := os.Stat("/usr/include/stdio.h"); headers != nil {
			t.Skip("no C library to compile with")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(tr.program, "--dir", dir, "--", "true").CombinedOutput()
	if code := exitCode(err); code == codeForbidden {
		t.Skip("this machine forbids tracing")
	} else if code != 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	return tr
}

// Run is a command to trace.
type Run struct {
	Dir   string // the directory below which calls are numbered, and the working one
	Args  []string
	Env   []string // beyond the test's own
	Of    Of
	Fault Fault
	N     int // of the call that Fault is for
}

// Result is what became of a Run.
type Result struct {
	Code   int // 128 and the signal where one ended it
	Stdout string
	Stderr string
	Calls  []Call
}

// Spoiled is the first call that the fault changed, nil where the command made too
// few calls.
func (r *Result) Spoiled() *Call {
	for i := range r.Calls {
		if r.Calls[i].Spoiled {
			return &r.Calls[i]
		}
	}
	return nil
}

// Do runs a command to its end.
func (tr *Tracer) Do(t testing.TB, r Run) *Result {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	args := append([]string{"--dir", r.Dir, "--log", log, "--of", string(r.Of)}, r.Fault.args(r.N)...)
	cmd := exec.Command(tr.program, append(append(args, "--"), r.Args...)...)
	cmd.Dir, cmd.Env = r.Dir, append(os.Environ(), r.Env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	res := &Result{Code: exitCode(cmd.Run()), Stdout: stdout.String(), Stderr: stderr.String()}
	if res.Code == codeFailed || res.Code == codeForbidden {
		t.Fatalf("faultio: %s", res.Stderr)
	}
	var err error
	if res.Calls, err = readLog(log); err != nil {
		t.Fatal(err)
	}
	return res
}

// exitCode is the exit code of a command that ended with err, -1 for one that never
// began.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func readLog(name string) (out []Call, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		if len(words) != 5 {
			return nil, fmt.Errorf("%s: %q is no call", name, lines.Text())
		}
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, Call{N: n, Name: words[1], Path: words[2], Path2: words[3], Spoiled: words[4] == "fault"})
	}
	return out, lines.Err()
}
