package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// asCommand is the environment variable that makes this test binary act as mt.
const asCommand = "MT_TEST_AS_COMMAND"

// TestImpatience: the first signal cancels, and a later one insists. A signal right after the first is ignored.
func TestImpatience(t *testing.T) {
	for _, tc := range []struct {
		what string
		at   []time.Duration // times of the signals
		want bool
	}{
		{"none", nil, false},
		{"one", []time.Duration{0}, false},
		{"two of timeout(1)", []time.Duration{0, 3 * time.Millisecond}, false},
		{"two, and a person", []time.Duration{0, 3 * time.Millisecond, 2 * time.Second}, true},
		{"a person twice", []time.Duration{0, time.Second}, true},
	} {
		signals := make(chan os.Signal, 9)
		for range tc.at {
			signals <- syscall.SIGTERM
		}
		close(signals)
		ctx, cancel := context.WithCancelCause(t.Context())
		var said bytes.Buffer
		got := false
		heed(signals, nil, nil, &said, func() time.Time {
			at := tc.at[0]
			tc.at = tc.at[1:]
			return time.Unix(1e9, 0).Add(at)
		}, cancel, func() { got = true })
		if asked := errors.Is(context.Cause(ctx), settings.ErrInterrupted); got != tc.want || asked != (tc.what != "none") {
			t.Errorf("%s: insists %t, asks %t", tc.what, got, asked)
		}
		if asked := strings.Contains(said.String(), "terminated: finishing what is begun; once more to stop at once"); asked != (tc.what != "none") {
			t.Errorf("%s: said %q", tc.what, said.String())
		}
	}
}

// TestAskedInTheMiddleOfAWord: if nobody reads mt's output, a write of it blocks. Even then a first
// signal stops the run, and a later one ends mt at once.
func TestAskedInTheMiddleOfAWord(t *testing.T) {
	r, w := io.Pipe() // a write blocks until it is read
	signals := make(chan os.Signal, 2)
	signals <- os.Interrupt
	signals <- os.Interrupt
	ctx, cancel := context.WithCancelCause(t.Context())
	at := time.Unix(1e9, 0)
	now := func() time.Time { at = at.Add(patience); return at }
	insisted, done := make(chan struct{}), make(chan struct{})
	go func() { heed(signals, nil, nil, w, now, cancel, func() { close(insisted) }); close(done) }()
	<-ctx.Done()
	<-insisted
	_ = r.Close()
	<-done
}

// TestAskedWhileTheGPUHangs: after a stop signal mt exits without waiting for hanging GPU work,
// whether the hang is found before or after the signal. Without a signal a hang does not end mt.
func TestAskedWhileTheGPUHangs(t *testing.T) {
	for _, after := range []int{0, 2} { // ticks after which the work is known to hang
		signals, look := make(chan os.Signal, 1), make(chan time.Time, 9)
		looked, insisted := 0, false
		hangs := func() bool {
			looked++
			return looked > after
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var said bytes.Buffer
		for range 9 {
			look <- time.Time{}
		}
		done := make(chan struct{})
		go func() {
			heed(signals, look, hangs, &said, time.Now, cancel, func() { insisted = ctx.Err() != nil })
			close(done)
		}()
		signals <- syscall.SIGTERM
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("it goes on with work that hangs after %d looks", after)
		}
		if !insisted || looked != after+1 || !strings.HasSuffix(said.String(), "once more to stop at once\nmt: work on the GPU does not end: stopping without it; checkpoints stay as they are\n") {
			t.Errorf("insists %t after %d looks and says %q", insisted, looked, said.String())
		}
	}
}

// command is mt as a child process, with both of its outputs in one pipe.
type command struct {
	*exec.Cmd
	out  *os.File
	said []string
}

// begin starts mt as a child process. front is a command to run it under, such as nohup; nil: none.
func begin(t *testing.T, front []string, args ...string) *command {
	t.Helper()
	words := append(append(front, os.Args[0]), args...)
	c := &command{Cmd: exec.Command(words[0], words[1:]...)}
	c.Env = append(os.Environ(), asCommand+"=1")
	r, w, err := os.Pipe()
	testkit.NoError(t, err)
	c.Stdout, c.Stderr, c.out = w, w, r
	testkit.NoError(t, c.Start())
	_ = w.Close() // the child has its own
	t.Cleanup(func() { _ = c.Process.Kill(); _ = r.Close() })
	return c
}

// until reads the output of mt until a line contains text.
func (c *command) until(t *testing.T, text string) {
	t.Helper()
	lines := bufio.NewScanner(c.out)
	for lines.Scan() {
		c.said = append(c.said, lines.Text())
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("mt never said %q, but\n%s", text, strings.Join(c.said, "\n"))
}

// signal sends signals to mt, waits until it ends, and returns the exit code; -1: a signal has
// ended it.
func (c *command) signal(t *testing.T, s ...os.Signal) int {
	t.Helper()
	for _, s := range s {
		testkit.NoError(t, c.Process.Signal(s))
	}
	_ = c.Wait() // the exit code is checked below
	return c.ProcessState.ExitCode()
}

// needHangup skips a test that closes a terminal if SIGHUP is ignored here.
func needHangup(t *testing.T) {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("these tests run under nohup, and what they start ignores a closed terminal too")
	}
}

// TestNobodyReads: a run continues when its output pipe is closed, as when Ctrl-C ends tee first. It saves when it is
// asked to stop.
func TestNobodyReads(t *testing.T) {
	testkit.NotShort(t)
	for name, tc := range map[string]struct {
		front   []string
		signals []os.Signal
	}{
		"Ctrl-C":            {nil, []os.Signal{os.Interrupt}},
		"a closed terminal": {nil, []os.Signal{syscall.SIGHUP}},
		"timeout":           {nil, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		"nohup":             {[]string{"nohup"}, []os.Signal{syscall.SIGHUP, syscall.SIGTERM}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.front == nil && tc.signals[0] == syscall.SIGHUP {
				needHangup(t)
			}
			if tc.front != nil {
				if _, err := exec.LookPath(tc.front[0]); err != nil {
					t.Skipf("%s is not here: %v", tc.front[0], err)
				}
			}
			out, args := smallRun(t, "--max-steps", "1000000", "--logging-steps", "1", "--save-steps", "1000000")
			c := begin(t, tc.front, args...)
			c.until(t, "step 2/")
			_ = c.out.Close()
			if code := c.signal(t, tc.signals...); code != exitInterrupted {
				t.Errorf("exit code %d", code)
			}
			if saved, _ := filepath.Glob(filepath.Join(out, "checkpoint-*[0-9]", "manifest.json")); len(saved) != 1 {
				t.Errorf("checkpoints %v", saved)
			}
		})
	}
}

// TestHangupIsIgnoredUnderNohup: a run under nohup outlives its terminal.
func TestHangupIsIgnoredUnderNohup(t *testing.T) {
	testkit.NotShort(t)
	if _, err := exec.LookPath("nohup"); err != nil {
		t.Skipf("nohup is not here: %v", err)
	}
	_, args := smallRun(t, "--max-steps", "1000000", "--logging-steps", "1", "--save-steps", "1000000")
	c := begin(t, []string{"nohup"}, args...)
	c.until(t, "step 2/")
	testkit.NoError(t, c.Process.Signal(syscall.SIGHUP))
	c.until(t, "step 200/") // long after the signal
	_ = c.out.Close()
	if code := c.signal(t, syscall.SIGTERM); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if said := strings.Join(c.said, "\n"); strings.Contains(said, "hangup") {
		t.Errorf("it heeded the signal:\n%s", said)
	}
}

// TestOutputThatDoesNotArrive: a closed pipe or a full disk behind the log does not harm a run. A command whose output
// is its only result fails.
func TestOutputThatDoesNotArrive(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("there is no disk here that is always full: %v", err)
	}
	defer full.Close()
	gone, w, err := os.Pipe()
	testkit.NoError(t, err)
	_ = gone.Close()
	defer w.Close()
	_, args := smallRun(t, "--max-steps", "2")
	for _, tc := range []struct {
		args []string
		to   *os.File
		code int
		says string
	}{
		{append(args, "--seed", "1"), full, exitDone, ""},
		{append(args, "--seed", "2", "--resume-from-checkpoint", "false"), w, exitDone, ""},
		{[]string{"version", "--json"}, full, exitFailed, "no space left on device"},
		{[]string{"version", "--json"}, w, exitPipe, ""},
	} {
		c := exec.Command(os.Args[0], tc.args...)
		var said bytes.Buffer
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), asCommand+"=1"), tc.to, &said
		_ = c.Run() // the exit code is checked below
		if got := c.ProcessState.ExitCode(); got != tc.code || !strings.Contains(said.String(), tc.says) || tc.code == exitPipe && said.Len() > 0 {
			t.Errorf("mt %s: exit code %d, want %d\n%s", strings.Join(tc.args, " "), got, tc.code, said.String())
		}
	}
}
