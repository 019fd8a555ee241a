package main

import (
	"bufio"
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

// Exit codes with which the tracer reports its own errors.
const (
	tracerFailed    = 125
	tracerForbidden = 126
)

// numbered selects the system calls that the tracer numbers, for its flag --of.
type numbered string

const (
	allCalls      numbered = "all"     // every call on a path below the directory
	changingCalls numbered = "changes" // those that change a file or a directory, or sync it
	writingCalls  numbered = "writes"  // calls that write bytes
	noCalls       numbered = "nothing" // none
)

// ioFault is a fault that the tracer injects into one system call.
type ioFault string

const (
	noFault    ioFault = ""
	failEIO    ioFault = "fail:EIO"         // the call fails once
	failENOSPC ioFault = "fail-from:ENOSPC" // this call and all later numbered calls fail
	shortWrite ioFault = "short"            // half of the bytes are written
	killBefore ioFault = "kill-before"      // SIGKILL, and the call is not made
	killAmid   ioFault = "kill-amid"        // SIGKILL after half of the bytes are written
	killAfter  ioFault = "kill-after"       // SIGKILL after the call
)

// args returns the tracer's flags for injecting the fault f at call number n.
func (f ioFault) args(n int) []string {
	if f == noFault {
		return nil
	}
	option, errno, _ := strings.Cut(string(f), ":")
	if errno != "" {
		errno = ":" + errno
	}
	return []string{"--" + option, strconv.Itoa(n) + errno}
}

// ioCall is a system call of a traced run that the tracer has numbered.
type ioCall struct {
	N           int    // from 1
	Name        string // such as pwrite64
	Path, Path2 string // Path2 is the target of a rename or a link
	Spoiled     bool
}

// String formats the call as a line of a log.
func (c ioCall) String() string {
	return strings.TrimRight(fmt.Sprintf("call %d, %s %s %s", c.N, c.Name, c.Path, c.Path2), " ")
}

// tracer runs commands under tools/faultio, a C program that tests compile. It numbers the system
// calls of all threads on paths below the working directory, for the calls in the table of calls.h.
// It injects a fault into one of them, like a failing disk, a full disk or a kill. Syncs succeed
// without being made: a fault ends only a process, and the next process sees all its writes.
type tracer struct{ program string }

// newTracer compiles the tracer. It skips the test if compiling or tracing is not possible.
func newTracer(t testing.TB) *tracer {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("system calls are traced on Linux on amd64 only")
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	dir := t.TempDir()
	for _, name := range []string{"faultio.c", "calls.h"} {
		text, err := os.ReadFile(filepath.Join("../../tools/faultio", name)) // go test's cache does not see gcc's reads
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr := &tracer{program: filepath.Join(dir, "faultio")}
	cmd := exec.Command(cc, "-O1", "-Wall", "-Wextra", "-Werror", "-o", tr.program, filepath.Join(dir, "faultio.c"))
	if out, err := cmd.CombinedOutput(); err != nil {
		if _, headers := os.Stat("/usr/include/stdio.h"); headers != nil {
			t.Skip("no C library to compile with")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(tr.program, "--dir", dir, "--", "true").CombinedOutput()
	if code := tracedExit(err); code == tracerForbidden {
		t.Skip("this machine forbids tracing")
	} else if code != 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	return tr
}

// tracedRun is a command to trace.
type tracedRun struct {
	Dir   string // working directory; calls on paths below it are numbered
	Args  []string
	Env   []string // in addition to the test's own
	Of    numbered
	Fault ioFault
	N     int // number of the call for Fault
}

// tracedResult is the result of a tracedRun.
type tracedResult struct {
	Code   int // 128 plus the signal if a signal ended it
	Stdout string
	Stderr string
	Calls  []ioCall
}

// Spoiled returns the first call that the injected fault has changed; nil: the command made too few
// calls.
func (r *tracedResult) Spoiled() *ioCall {
	for i := range r.Calls {
		if r.Calls[i].Spoiled {
			return &r.Calls[i]
		}
	}
	return nil
}

// Do runs a command to its end.
func (tr *tracer) Do(t testing.TB, r tracedRun) *tracedResult {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	args := append([]string{"--dir", r.Dir, "--log", log, "--of", string(r.Of)}, r.Fault.args(r.N)...)
	cmd := exec.Command(tr.program, append(append(args, "--"), r.Args...)...)
	cmd.Dir, cmd.Env = r.Dir, append(os.Environ(), r.Env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	res := &tracedResult{Code: tracedExit(cmd.Run()), Stdout: stdout.String(), Stderr: stderr.String()}
	if res.Code == tracerFailed || res.Code == tracerForbidden {
		t.Fatalf("faultio: %s", res.Stderr)
	}
	var err error
	if res.Calls, err = readCalls(log); err != nil {
		t.Fatal(err)
	}
	return res
}

// tracedExit returns the exit code of a command that ended with err; -1: it did not start.
func tracedExit(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func readCalls(name string) (out []ioCall, err error) {
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
		out = append(out, ioCall{N: n, Name: words[1], Path: words[2], Path2: words[3], Spoiled: words[4] == "fault"})
	}
	return out, lines.Err()
}
