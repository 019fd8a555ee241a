package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/internal/testkit"
)

// pipeline is mt with a program that reads its output, in one process group, as a shell starts `mt … 2>&1 | program`.
type pipeline struct {
	*command
	reader *exec.Cmd
}

// pipeTo starts `FRONT mt ARGS… 2>&1 | PROGRAM`. command.until reads the program's output.
func pipeTo(t *testing.T, front, program, args []string) *pipeline {
	t.Helper()
	for _, name := range []string{append(front, "true")[0], program[0]} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s, which this test pipes to or through, is not here: %v", name, err)
		}
	}
	shown, to, err := os.Pipe()
	testkit.NoError(t, err)
	from, said, err := os.Pipe()
	testkit.NoError(t, err)
	words := append(append(front, os.Args[0]), args...)
	p := &pipeline{&command{Cmd: exec.Command(words[0], words[1:]...), out: shown}, exec.Command(program[0], program[1:]...)}
	p.Env = append(os.Environ(), asCommand+"=1")
	p.Stdout, p.Stderr = said, said
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.NoError(t, p.Start())
	p.reader.Stdin, p.reader.Stdout = from, to
	p.reader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: p.Process.Pid}
	err = p.reader.Start()
	for _, f := range []*os.File{to, from, said} {
		_ = f.Close() // the children have theirs
	}
	t.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL); _ = shown.Close() })
	testkit.NoError(t, err)
	return p
}

// TestTee: `mt train run.yaml 2>&1 | tee log` ends with a checkpoint whatever ends the pipeline, even if tee ends
// first, and resumes from it.
func TestTee(t *testing.T) {
	for name, tc := range map[string]struct {
		front   []string
		signals []syscall.Signal
		alone   bool // signal only the first process, not the group
	}{
		"Ctrl-C":                   {signals: []syscall.Signal{syscall.SIGINT}},
		"Ctrl-C twice at once":     {signals: []syscall.Signal{syscall.SIGINT, syscall.SIGINT}},
		"a closed terminal":        {signals: []syscall.Signal{syscall.SIGHUP}},
		"a terminal's two":         {signals: []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
		"kill of the group":        {signals: []syscall.Signal{syscall.SIGTERM}},
		"kill of timeout":          {front: []string{"timeout", "1000000"}, signals: []syscall.Signal{syscall.SIGTERM}, alone: true},
		"Ctrl-C of timeout":        {front: []string{"timeout", "1000000"}, signals: []syscall.Signal{syscall.SIGINT}},
		"kill of mt":               {signals: []syscall.Signal{syscall.SIGTERM}, alone: true},
		"closed terminal of nohup": {front: []string{"nohup"}, signals: []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "Ctrl-C" {
				testkit.NotShort(t)
			}
			t.Parallel()
			if tc.front == nil && len(tc.signals) == 1 && tc.signals[0] == syscall.SIGHUP {
				needHangup(t)
			}
			out, args := smallRun(t, "--max-steps", "1000000", "--logging-steps", "1", "--save-steps", "1000000", "--eval-steps", "0")
			log := filepath.Join(filepath.Dir(out), "log")
			p := pipeTo(t, tc.front, []string{"tee", log}, args)
			p.until(t, "step 2/")
			to := -p.Process.Pid
			if tc.alone {
				to = p.Process.Pid
			}
			for _, s := range tc.signals {
				testkit.NoError(t, syscall.Kill(to, s))
			}
			_, _ = p.reader.Wait(), p.Wait() // the exit codes are checked below
			if code := p.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("exit code %d: %v\n%s", code, p.ProcessState, strings.Join(p.said, "\n"))
			}
			saved, _ := filepath.Glob(filepath.Join(out, "checkpoint-*"))
			if len(saved) != 1 {
				t.Fatalf("checkpoints %v\n%s", saved, strings.Join(p.said, "\n"))
			}
			if err := checkpoint.Verify(saved[0]); err != nil {
				t.Error(err)
			}
			state, err := checkpoint.ReadState(saved[0])
			if err != nil || state.Step < 2 {
				t.Errorf("step %d is saved, %v", state.Step, err)
			}
		})
	}
}

// TestHead: a run continues if the program that reads its output, such as head, exits.
func TestHead(t *testing.T) {
	testkit.NotShort(t)
	out, args := smallRun(t, "--max-steps", "30", "--logging-steps", "1")
	p := pipeTo(t, nil, []string{"head", "-n", "1"}, args)
	_, _ = p.reader.Wait(), p.Wait()
	if code := p.ProcessState.ExitCode(); code != exitDone {
		t.Errorf("a run into head ends with %v", p.ProcessState)
	}
	if _, err := os.Stat(filepath.Join(out, "model.safetensors")); err != nil {
		t.Error(err)
	}
}
