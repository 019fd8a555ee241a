package mpirun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// hung is after how long a program is taken to hang. What tests run takes seconds.
const hung = 2 * time.Minute

// Result is what became of a program.
type Result struct {
	Stdout, Stderr string // of all ranks and of mpirun
	Code           int    // mpirun's
}

// Run runs a program as n ranks on this machine and waits until all have ended. env is
// added to the environment. The test is skipped where there is no mpirun, and fails
// where the program hangs or has a data race.
func Run(t *testing.T, n int, env []string, program string, args ...string) Result {
	t.Helper()
	return RunBy(t, "mpirun", n, env, program, args...)
}

// RunBy is Run with a launcher of another name, such as mpirun.mpich.
func RunBy(t *testing.T, launcher string, n int, env []string, program string, args ...string) Result {
	t.Helper()
	launcher, err := exec.LookPath(launcher)
	if err != nil {
		t.Skipf("%v: apt install mpich, or pip install mpich", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	cmd := exec.CommandContext(ctx, launcher, append([]string{"-n", fmt.Sprint(n), program}, args...)...)
	cmd.WaitDelay = 5 * time.Second // ranks that outlive mpirun hold its output open
	cmd.Env = append(append(os.Environ(), openMPI...), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Fatalf("%s -n %d %s %v has hung\n%s%s", launcher, n, program, args, &stdout, &stderr)
	case err != nil && !errors.As(err, &exit):
		t.Fatalf("%s: %v", launcher, err)
	}
	// A rank ends by C's exit, at which the race detector does not make the exit code 66.
	if text := stdout.String() + stderr.String(); strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("a rank has a data race\n%s", text)
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// openMPI lets Open MPI 4 and 5 run as root, run more ranks than there are cores, and
// let each rank use all of them. Other implementations do so by themselves.
var openMPI = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none",
	"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", "PRTE_MCA_hwloc_default_binding_policy=none",
}
