package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// childConfig is the environment variable that makes this test binary train a config file instead
// of testing. The test can then kill it.
const childConfig = "MT_TEST_TRAIN_CONFIG"

func TestMain(m *testing.M) {
	machine.Search = noCUDA
	machine.CPURateSize = 64
	if file := os.Getenv(childConfig); file != "" {
		os.Exit(trainChild(file))
	}
	if file := os.Getenv(childMemory); file != "" {
		os.Exit(memoryChild(file))
	}
	os.Exit(testkit.InMemory(m))
}

// childMoment is the environment variable that names the moment to kill a child, such as "saving
// 2". When the child reaches this moment the second time, it writes to its descriptor 3 and waits
// to be killed.
const childMoment = "MT_TEST_TRAIN_MOMENT"

// trainChild does in the child process what `mt train FILE` does, and returns the exit code.
func trainChild(file string) int {
	c, err := config.Load(file, config.Args{})
	if err == nil {
		err = Train(context.Background(), c, settings.Options{Stdout: os.Stdout, Stderr: os.Stderr, Hooks: momentHooks(os.Getenv(childMoment))})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// moments are the points at which a child can be killed. They are: when it packs a batch, creates a
// file of a checkpoint, or writes the metrics line of a step, and before and after it renames a
// finished checkpoint.
var moments = []string{"packing", "saving", "logging", "naming", "named"}

// momentHooks returns the hooks that stop a child at a moment; for "" they never do.
func momentHooks(moment string) settings.Hooks {
	disk := lazyFS{checkpoint.OS()} // what is written survives a kill, though it be on no disk yet
	if moment == "" {
		return settings.Hooks{FS: disk}
	}
	var name string
	var n int64
	if _, err := fmt.Sscan(moment, &name, &n); err != nil {
		panic(err)
	}
	var times atomic.Int64
	come := func(to string) {
		if to == name && times.Add(1) == n {
			_, _ = os.NewFile(3, "moment").WriteString("here\n")
			select {} // until it is killed
		}
	}
	return settings.Hooks{Packing: func(int, bool) { come("packing") }, Logging: func(int) { come("logging") }, FS: momentFS{disk, come}}
}

// momentFS is a disk that calls come when a save reaches one of the moments.
type momentFS struct {
	checkpoint.FS
	come func(to string)
}

func (f momentFS) Create(path string) (checkpoint.File, error) {
	if strings.Contains(path, "checkpoint-") {
		f.come("saving")
	}
	return f.FS.Create(path)
}

func (f momentFS) Rename(from, to string) error {
	save, _ := filepath.Match("checkpoint-*[0-9]", filepath.Base(to))
	if save {
		f.come("naming")
	}
	err := f.FS.Rename(from, to)
	if save {
		f.come("named")
	}
	return err
}

// child is a process that trains a scene.
type child struct {
	cmd *exec.Cmd
	out bytes.Buffer
	at  *os.File // says that the child has come to its moment
}

// start trains the scene in a child process, which waits at moment to be killed. If moment is "",
// it trains to the end.
func (s scene) start(t *testing.T, moment string) *child {
	t.Helper()
	file := filepath.Join(s.root, "run.yaml")
	write(t, file, s.source())
	c := &child{cmd: exec.Command(os.Args[0])}
	at, w, err := os.Pipe()
	testkit.NoError(t, err)
	c.at = at
	c.cmd.Env = append(os.Environ(), childConfig+"="+file, childMoment+"="+moment)
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.ExtraFiles = &c.out, &c.out, []*os.File{w}
	err = c.cmd.Start()
	_ = w.Close() // the child has its own
	testkit.NoError(t, err)
	return c
}

// killed kills the child with SIGKILL when it reaches its moment, and reports whether it reached
// it. A child that did not must have ended without an error.
func (c *child) killed(t *testing.T) bool {
	t.Helper()
	said, err := io.ReadAll(io.LimitReader(c.at, int64(len("here\n")))) // reads to the end where the child says nothing
	if err != nil {
		t.Error(err)
	}
	_ = c.at.Close()
	if len(said) > 0 {
		_ = c.cmd.Process.Kill() // Wait says what came of it
	}
	err = c.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && len(said) > 0 && status.Signal() == syscall.SIGKILL {
			return true
		}
	}
	if err != nil || len(said) > 0 {
		t.Fatalf("the child said %q and ended with %v\n%s", said, err, c.out.String())
	}
	return false
}

// TestKilled: a run is repeatedly killed with SIGKILL at any of the moments, and restarted by the
// same command. It ends with the same bits as an undisturbed run.
func TestKilled(t *testing.T) {
	rounds := testkit.Count(t, 3, 1)
	steps := 8 * rounds // each round goes on by fewer
	for name, extra := range map[string]string{"fp32": "save_total_limit: 3\n", "bf16-tied-eval": "tied\ncompute_dtype: bf16\nval_size: 2\neval_steps: 1\n",
		"fp32-experts": "experts\nbinding: copy\nval_size: 2\neval_steps: 2\n", "disks": "compute_dtype: bf16\nrecompute: full\nsave_total_limit: 2\n"} {
		t.Run(name, func(t *testing.T) {
			if testkit.NotShort(t); name != "bf16-tied-eval" && name != "disks" {
				testkit.LongOnly(t)
			}
			t.Parallel()
			want := recipeScene(t, extra).with(fmt.Sprintf("save_steps: 1\nmax_steps: %d\n", steps))
			if want.start(t, "").killed(t) {
				t.Fatal("a child without a moment was killed")
			}
			r := rand.New(rand.NewPCG(11, uint64(len(name))))
			got := want.in(t)
			if name == "disks" {
				got = got.onDisks(t)
			}
			got = got.with("cache_dir: " + filepath.Dir(got.out) + "/cache\n")
			for range rounds {
				for _, m := range moments {
					n := 1 + r.IntN(2)
					if m == "saving" {
						n = 1 + r.IntN(9) // of the files of one checkpoint
					}
					moment := fmt.Sprintf("%s %d", m, n)
					if !got.start(t, moment).killed(t) {
						t.Fatalf("the run ended before it came to %q", moment)
					}
					t.Logf("killed at %q, at %s", moment, got.newest())
				}
			}
			if got.start(t, "").killed(t) {
				t.Fatal("a child without a moment was killed")
			}
			sameRun(t, got, want)
			if rest, _ := filepath.Glob(filepath.Join(got.out, "*tmp*")); len(rest) > 0 {
				t.Errorf("unfinished saves are left: %v", rest)
			}
		})
	}
}

// newest returns the number of checkpoints in the output directory as text for the log.
func (s scene) newest() string {
	found, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-*"))
	return fmt.Sprintf("%d checkpoints", len(found))
}
