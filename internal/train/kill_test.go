package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"mt/internal/config"
	"mt/internal/long"
	"mt/internal/machine"
)

// childConfig is the variable that makes this test binary train a config file
// instead of testing, so that it can be killed.
const childConfig = "MT_TEST_TRAIN_CONFIG"

func TestMain(m *testing.M) {
	machine.Search = noCUDA
	if file := os.Getenv(childConfig); file != "" {
		os.Exit(trainChild(file))
	}
	if file := os.Getenv(childMemory); file != "" {
		os.Exit(memoryChild(file))
	}
	os.Exit(m.Run())
}

// trainChild is `mt train FILE`, as far as a killer is concerned.
func trainChild(file string) int {
	c, err := config.Load(file, config.Args{})
	if err == nil {
		err = Train(context.Background(), c, Options{Stdout: os.Stdout, Stderr: os.Stderr})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a process that trains a scene.
type child struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func (s scene) start(t *testing.T) *child {
	t.Helper()
	file := filepath.Join(s.root, "run.yaml")
	write(t, file, s.source())
	c := &child{cmd: exec.Command(os.Args[0]), done: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), childConfig+"="+file)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- c.cmd.Wait() }()
	return c
}

// killed kills the child once moment returns and says whether that was before
// its end.
func (c *child) killed(t *testing.T, moment func(alive func() bool)) bool {
	t.Helper()
	moment(func() bool { return len(c.done) == 0 })
	_ = c.cmd.Process.Kill() // it may have ended
	err := <-c.done
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if status, ok := syscall.WaitStatus(0), errors.As(err, &exit); ok {
		if status, ok = exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return true
		}
	}
	t.Fatalf("the child failed: %v\n%s", err, c.out.String())
	return false
}

// moments are when to kill a child whose run takes about whole: at any time, or
// while a checkpoint or the model is being written.
func (s scene) moments(r *rand.Rand, whole time.Duration) map[string]func(alive func() bool) {
	writing := func(pattern string) func(alive func() bool) {
		skip := r.IntN(4)
		late := time.Duration(r.Int64N(int64(4 * time.Millisecond)))
		return func(alive func() bool) {
			old, fresh := map[string]bool{}, 0
			for first := true; alive() && fresh <= skip; first = false {
				found, _ := filepath.Glob(filepath.Join(s.out, pattern))
				for _, f := range found {
					if !old[f] && !first {
						fresh++
					}
					old[f] = true
				}
			}
			for begin := time.Now(); alive() && time.Since(begin) < late; {
			}
		}
	}
	at := time.Duration(r.Int64N(int64(whole)))
	return map[string]func(alive func() bool){
		"at any time":         func(alive func() bool) { <-time.After(at) },
		"while saving":        writing("checkpoint-*.tmp-*"),
		"just after a save":   writing("checkpoint-*[0-9]"),
		"between two records": writing("checkpoint-*/manifest.json"),
	}
}

// TestKilled: a run that is killed (−9) again and again, at any moment, and
// started again by the same command, ends bit for bit as one left alone.
func TestKilled(t *testing.T) {
	const steps = 24
	for name, extra := range map[string]string{"fp32": "save_total_limit: 3\n", "bf16-tied-eval": "tied\ncompute_dtype: bf16\nval_size: 2\neval_steps: 1\n",
		"fp32-experts": "experts\nbinding: copy\nval_size: 2\neval_steps: 2\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := recipeScene(t, extra).with(fmt.Sprintf("save_steps: 1\nmax_steps: %d\n", steps))
			begin := time.Now()
			c := want.start(t)
			if err := <-c.done; err != nil {
				t.Fatalf("%v\n%s", err, c.out.String())
			}
			whole := time.Since(begin)
			r := rand.New(rand.NewPCG(11, uint64(len(name))))
			fresh := func() scene {
				s := want.in(t)
				return s.with("cache_dir: " + filepath.Dir(s.out) + "/cache\n")
			}
			got, kills := fresh(), 0
			for range long.Count(t, 3, 2) {
				for _, when := range slices.Sorted(maps.Keys(got.moments(r, whole))) {
					if got.start(t).killed(t, got.moments(r, whole)[when]) {
						kills++
						t.Logf("killed %s, at %s", when, got.newest())
					} else if kills < 3 { // it was faster than the first; a run that has ended dies no more
						got, kills = fresh(), 0
					}
				}
			}
			if kills < 3 {
				t.Fatalf("the run was killed %d times only", kills)
			}
			c = got.start(t)
			if err := <-c.done; err != nil {
				t.Fatalf("after %d kills: %v\n%s", kills, err, c.out.String())
			}
			sameRun(t, got, want)
			if rest, _ := filepath.Glob(filepath.Join(got.out, "*tmp*")); len(rest) > 0 {
				t.Errorf("unfinished saves are left: %v", rest)
			}
		})
	}
}

// newest names the checkpoints there are, for the log.
func (s scene) newest() string {
	found, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-*"))
	return fmt.Sprintf("%d checkpoints", len(found))
}
