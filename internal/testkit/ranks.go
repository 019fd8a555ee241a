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

// hung is after how long a program is taken to hang. What tests run takes seconds.
const hung = 2 * time.Minute

// RanksResult is what became of a program.
type RanksResult struct {
	Stdout, Stderr string // of all ranks and of mpirun
	Code           int    // mpirun's
}

// RunRanks runs a program as n ranks on this machine and waits until all have ended. env is
// added to the environment. The test is skipped where there is no mpirun, and fails
// where the program hangs or has a data race.
func RunRanks(t *testing.T, n int, env []string, program string, args ...string) RanksResult {
	t.Helper()
	return RunRanksBy(t, "mpirun", n, env, program, args...)
}

// RunRanksBy is RunRanks with a launcher of another name, such as mpirun.mpich.
func RunRanksBy(t *testing.T, launcher string, n int, env []string, program string, args ...string) RanksResult {
	t.Helper()
	return startRanks(t, launcher, "", n, env, program, args).Wait(t)
}

// RunningRanks is a program that runs as several ranks.
type RunningRanks struct {
	cmd            *exec.Cmd
	ctx            context.Context
	stdout, stderr saying
}

// StartRanks is RunRanks in a folder (empty: the current one), which does not wait for the end.
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

// Said is what all ranks and mpirun have written to their standard error so far.
func (r *RunningRanks) Said() string { return r.stderr.text() }

// Wait waits until all have ended.
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
	// A rank ends by C's exit, at which the race detector does not make the exit code 66.
	if text := stdout + stderr; strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("a rank has a data race\n%s", text)
	}
	return RanksResult{stdout, stderr, r.cmd.ProcessState.ExitCode()}
}

// saying is what is being written, which may be read meanwhile.
type saying struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
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

// openMPI lets Open MPI 4 and 5 run as root, run more ranks than there are cores, and
// let each rank use all of them. Other implementations do so by themselves.
var openMPI = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none",
	"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", "PRTE_MCA_hwloc_default_binding_policy=none",
}
