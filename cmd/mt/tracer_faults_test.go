package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mt/internal/testkit"
)

// tracedScript is a shell script to trace. It creates a file of ten bytes, renames it and reads it.
// cat reads it in another process, which stands for another thread of a program.
const tracedScript = "printf 0123456789 >new; mv new file; cat file"

// TestTracerSpoils: each fault at each system call of a script has the expected effect on the
// files.
func TestTracerSpoils(t *testing.T) {
	testkit.NotShort(t)
	tr := newTracer(t)
	for _, tc := range []struct {
		of       numbered
		fault    ioFault
		call     string // the call to spoil: its name and the base name of its path
		code     int
		files    string // names and contents afterwards
		says     string
		spoilt   int
		numbered string // names of the numbered calls; "": any
	}{
		{changingCalls, noFault, "", 0, "file=0123456789", "", 0, "openat new,write new,renameat2 new"},
		{writingCalls, noFault, "", 0, "file=0123456789", "", 0, "write new"},
		{changingCalls, failEIO, "openat new", 1, "", "Input/output error", 1, ""},
		{writingCalls, failENOSPC, "write new", 0, "file=", "I/O error", 1, ""},
		{writingCalls, shortWrite, "write new", 0, "file=0123456789", "", 1, "write new,write new"},
		{allCalls, failEIO, "read file", 1, "file=0123456789", "Input/output error", 1, ""},
		{changingCalls, killBefore, "write new", 137, "new=", "", 1, ""},
		{changingCalls, killAmid, "write new", 137, "new=01234", "", 1, ""},
		{changingCalls, killAfter, "write new", 137, "new=0123456789", "", 1, ""},
		{changingCalls, killBefore, "renameat2 new", 137, "new=0123456789", "", 1, ""},
		{changingCalls, killAfter, "renameat2 new", 137, "file=0123456789", "", 1, ""},
	} {
		name := strings.TrimSpace(string(tc.of) + " " + string(tc.fault) + " " + tc.call)
		run := func(dir string, f ioFault, n int) *tracedResult {
			return tr.Do(t, tracedRun{Dir: dir, Args: []string{"sh", "-c", tracedScript}, Env: []string{"LC_ALL=C"}, Of: tc.of, Fault: f, N: n})
		}
		n := 1 + slices.IndexFunc(run(t.TempDir(), noFault, 0).Calls, func(c ioCall) bool { return c.Name+" "+filepath.Base(c.Path) == tc.call })
		if tc.fault != noFault && n == 0 {
			t.Errorf("%s: there is no such call", name)
			continue
		}
		dir := t.TempDir()
		got := run(dir, tc.fault, n)
		if got.Code != tc.code || !strings.Contains(got.Stderr, tc.says) {
			t.Errorf("%s: exit code %d, want %d: %q", name, got.Code, tc.code, got.Stderr)
		}
		if files := filesIn(t, dir); files != tc.files {
			t.Errorf("%s: %q is left, want %q", name, files, tc.files)
		}
		var spoilt int
		var names []string
		for i, c := range got.Calls {
			names = append(names, c.Name+" "+filepath.Base(c.Path))
			if c.N != i+1 {
				t.Errorf("%s: call %d has the number %d", name, i+1, c.N)
			}
			if c.Spoiled {
				spoilt++
			}
		}
		if spoilt != tc.spoilt {
			t.Errorf("%s: %d calls are spoiled: %v", name, spoilt, got.Calls)
		}
		if all := strings.Join(names, ","); tc.numbered != "" && all != tc.numbered {
			t.Errorf("%s: numbered are %s", name, all)
		}
	}
}

// filesIn returns the names and contents of the files in a directory, as one text.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	entries := testkit.Must(os.ReadDir(dir))(t)
	var out []string
	for _, e := range entries {
		raw := testkit.Must(os.ReadFile(filepath.Join(dir, e.Name())))(t)
		out = append(out, e.Name()+"="+string(raw))
	}
	return strings.Join(out, " ")
}

// TestTracerSeesAllThreads: the calls of all threads of a Go program, here this test, are numbered in one sequence.
func TestTracerSeesAllThreads(t *testing.T) {
	if dir := os.Getenv("MT_TEST_WRITER"); dir != "" {
		done := make(chan error)
		for i := range 8 {
			go func() { done <- os.WriteFile(filepath.Join(dir, string(rune('a'+i))), []byte("x"), 0o600) }()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		return
	}
	dir := t.TempDir()
	got := newTracer(t).Do(t, tracedRun{Dir: dir, Args: []string{os.Args[0], "-test.run=^TestTracerSeesAllThreads$"}, Env: []string{"MT_TEST_WRITER=" + dir}, Of: writingCalls, Fault: failEIO, N: 5})
	if met := got.Spoiled(); got.Code != 1 || len(got.Calls) != 8 || met == nil || met.N != 5 || !strings.Contains(got.Stdout, "write "+met.Path+": input/output error") {
		t.Errorf("exit code %d, %v\n%s", got.Code, got.Calls, got.Stdout)
	}
}

// TestTracerSkipsSyncs: under the tracer a sync succeeds without being made, or fails if a fault
// hits it. The test syncs a named pipe, which the kernel refuses, so a successful sync was not
// made.
func TestTracerSkipsSyncs(t *testing.T) {
	testkit.NotShort(t)
	tr, dir := newTracer(t), t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"sync", "pipe"}
	if exec.Command("sync", filepath.Join(dir, "pipe")).Run() == nil {
		t.Skip("this kernel syncs a named pipe")
	}
	for _, of := range []numbered{allCalls, changingCalls, writingCalls, noCalls} {
		got := tr.Do(t, tracedRun{Dir: dir, Args: args, Of: of})
		numbered := slices.ContainsFunc(got.Calls, func(c ioCall) bool { return c.Name == "fsync" })
		if got.Code != 0 || numbered != (of == allCalls || of == changingCalls) {
			t.Errorf("%s: exit code %d, %v\n%s", of, got.Code, got.Calls, got.Stderr)
		}
	}
	if got := tr.Do(t, tracedRun{Dir: dir, Args: args, Of: changingCalls, Fault: failEIO, N: 1}); got.Code != 1 || got.Spoiled() == nil || !strings.Contains(got.Stderr, "Input/output error") {
		t.Errorf("a spoiled one: exit code %d, %v\n%s", got.Code, got.Calls, got.Stderr)
	}
}
