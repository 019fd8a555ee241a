package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/internal/doctor"
	"mt/internal/testkit"
)

// readReport reads the report of a self test.
func readReport(t *testing.T, file string) (r doctor.SelfTestReport) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(file))(t)
	testkit.NoError(t, json.Unmarshal(raw, &r))
	return r
}

// TestSelfTest: a chosen part of the self test gives the same report in a child process and in this
// one, and in a file as on standard output. A missing device is reported once.
func TestSelfTest(t *testing.T) {
	t.Setenv(asCommand, "1")
	var names [2]string
	for i, more := range []string{"", " --in-process"} {
		file := filepath.Join(t.TempDir(), "r.json")
		printed := must(t, strings.Fields("doctor --selftest --device cpu --only Scale/fp32,long-tensor --json --report "+file+more)...)
		r := readReport(t, file)
		if got := object(t, printed); got["seconds"] != r.Seconds || got["device"] != r.Device || !r.OK {
			t.Errorf("%s is printed, the file has %+v", printed, r)
		}
		for _, c := range r.Checks {
			names[i] += c.Name + ", "
		}
	}
	if want := "Scale fp32, tensor of 65544 elements, "; names != [2]string{want, want} {
		t.Errorf("checks %q, want %q", names, want)
	}
	for _, more := range []string{"", " --in-process"} {
		code, stdout, stderr := mt(t, "", strings.Fields("doctor --selftest --device cuda --only copies"+more)...)
		if code != exitFailed || stdout != "" || strings.Count(stderr, "cuda: ") != 1 || !strings.HasPrefix(stderr, "mt: doctor: ") {
			t.Errorf("without a GPU, %s: exit code %d\n%s%s", more, code, stdout, stderr)
		}
	}
}

// TestSelfTestRefuses: meaningless flags are rejected before any test.
func TestSelfTestRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--only Scael":            `doctor: --only: neither an operation nor a part is called "Scael"`,
		"--repeat -1":             "doctor: --repeat -1: want a number of times",
		"--limit 0s --in-process": "doctor: --limit 0s: want a time, such as 90s",
	} {
		if code, stdout, stderr := mt(t, "", append([]string{"doctor", "--selftest"}, strings.Fields(args)...)...); code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// TestSelfTestInterrupted: a signal to mt and its child, as from timeout, ends both. The report names the running
// case.
func TestSelfTestInterrupted(t *testing.T) {
	testkit.NotShort(t)
	file := filepath.Join(t.TempDir(), "r.json")
	p := exec.Command(os.Args[0], "doctor", "--selftest", "--device", "cpu", "--report", file)
	p.Env = append(os.Environ(), asCommand+"=1")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := testkit.Must(p.StderrPipe())(t)
	testkit.NoError(t, p.Start())
	t.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
	if _, err := said.Read(make([]byte, 1)); err != nil { // "self test: operations"
		t.Fatal(err)
	}
	testkit.NoError(t, syscall.Kill(-p.Process.Pid, syscall.SIGTERM))
	_ = p.Wait() // the exit code is checked below
	if code := p.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if r := readReport(t, file); r.OK || !strings.Contains(r.Error, "stopped while ") || r.Running == "" {
		t.Errorf("%+v", r)
	}
	if err := syscall.Kill(-p.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a process is left: %v", err)
	}
}

// TestSelfTestChildEnds: a child ignores signals. It ends in the middle of its work when its parent exits, which
// closes its standard input.
func TestSelfTestChildEnds(t *testing.T) {
	testkit.NotShort(t)
	c := exec.Command(os.Args[0], "doctor", "--selftest", "--device", "cpu", "--child", "0")
	c.Env = append(os.Environ(), asCommand+"=1")
	var errs strings.Builder
	c.Stderr = &errs
	in, err := c.StdinPipe()
	testkit.NoError(t, err)
	out, err := c.StdoutPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		switch n {
		case 5:
			err = c.Process.Signal(syscall.SIGTERM)
		case 500:
			err = in.Close()
		}
		testkit.NoError(t, err)
		if strings.Contains(lines.Text(), `"end":true`) {
			t.Error("it has done all its work")
		}
	}
	_ = c.Wait() // the exit code is checked below
	if c.ProcessState.ExitCode() != exitFailed || errs.Len() > 0 {
		t.Errorf("%v, it says %q", c.ProcessState, errs.String())
	}
}
