package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// hung is the time after which a program counts as hung. Programs under test take seconds.
const hung = 2 * time.Minute

// RanksResult is the result of a program that ran as several ranks.
type RanksResult struct {
	Stdout, Stderr string // of all ranks and of mpirun
	Code           int    // exit code of mpirun
}

// RunRanks runs a program as n ranks on this machine and waits until all have ended. env is added to the environment.
// The test is skipped without mpirun, and fails if the program hangs or has a data race.
func RunRanks(t *testing.T, n int, env []string, program string, args ...string) RanksResult {
	t.Helper()
	return RunRanksBy(t, "mpirun", n, env, program, args...)
}

// RunRanksBy is RunRanks with a launcher of another name, such as mpirun.mpich.
func RunRanksBy(t *testing.T, launcher string, n int, env []string, program string, args ...string) RanksResult {
	t.Helper()
	return startRanks(t, launcher, "", n, env, program, args).Wait(t)
}

// RunningRanks is a running program with several ranks.
type RunningRanks struct {
	cmd            *exec.Cmd
	ctx            context.Context
	stdout, stderr saying
}

// StartRanks starts a program as RunRanks does, in a folder ("": the current one), and does not wait for its end.
func StartRanks(t *testing.T, dir string, n int, env []string, program string, args ...string) *RunningRanks {
	t.Helper()
	return startRanks(t, "mpirun", dir, n, env, program, args)
}

func startRanks(t *testing.T, launcher, dir string, n int, env []string, program string, args []string) *RunningRanks {
	t.Helper()
	launcher, err := exec.LookPath(launcher)
	if err != nil {
		t.Skipf("%v: apt install mpich, or pip install mpich", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	t.Cleanup(cancel)
	r := &RunningRanks{ctx: ctx, cmd: exec.CommandContext(ctx, launcher, append([]string{"-n", fmt.Sprint(n), program}, args...)...)}
	r.cmd.Dir = dir
	r.cmd.WaitDelay = 5 * time.Second // ranks that outlive mpirun hold its output open
	r.cmd.Env = append(append(os.Environ(), openMPI...), env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", launcher, err)
	}
	return r
}

// Signal sends a signal to mpirun.
func (r *RunningRanks) Signal(s os.Signal) error { return r.cmd.Process.Signal(s) }

// Said returns what all ranks and mpirun have written to standard error so far.
func (r *RunningRanks) Said() string { return r.stderr.text() }

// Wait waits until all ranks and mpirun have ended. The test fails if that takes too long or a rank has a data race.
func (r *RunningRanks) Wait(t *testing.T) RanksResult {
	t.Helper()
	err := r.cmd.Wait()
	stdout, stderr := r.stdout.text(), r.stderr.text()
	var exit *exec.ExitError
	switch {
	case r.ctx.Err() != nil:
		t.Fatalf("%v has hung\n%s%s", r.cmd.Args, stdout, stderr)
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		t.Fatalf("%v: %v", r.cmd.Args, err)
	}
	// A rank exits through C (MPI), so after a data race it does not end with the race detector's exit code 66. Only
	// its output tells.
	if text := stdout + stderr; strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("a rank has a data race\n%s", text)
	}
	return RanksResult{stdout, stderr, r.cmd.ProcessState.ExitCode()}
}

// saying collects the output of a process; the test may read it while the process still writes.
type saying struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer. It appends to the collected output.
func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *saying) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// openMPI has environment variables for Open MPI 4 and 5. They allow it to run as root, to start more ranks than there
// are cores, and to let each rank use all cores. Other implementations of MPI need no such settings.
var openMPI = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none",
	"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", "PRTE_MCA_hwloc_default_binding_policy=none",
}
