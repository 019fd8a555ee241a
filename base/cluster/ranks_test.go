package cluster_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mt/base/cluster"
	"mt/internal/testkit"
)

// asRank is an environment variable. If it is set, the test program runs as one rank of a
// distributed job; its value names the rank's task.
const asRank = "MT_TEST_RANK"

func TestMain(m *testing.M) {
	what := os.Getenv(asRank)
	if what == "" {
		os.Exit(m.Run())
	}
	code, err := beRank(what)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	cluster.Exit(code)
}

// beRank does the task called `what`, as one rank. It returns the exit code of the process.
func beRank(what string) (code int, err error) {
	l, err := cluster.LaunchOf(os.Getenv)
	if err != nil {
		return 1, err
	}
	// Each rank writes its messages to its own file, because a launcher may lose the last output.
	if os.Stderr, err = os.Create(filepath.Join(os.Getenv("MT_TEST_SAYS"), strconv.Itoa(l.Rank))); err != nil {
		return 1, err
	}
	if what == "misfit" {
		l.Size++
	}
	if what == "early" && l.Rank == 1 {
		return 4, nil
	}
	// With a maximum of 5 bytes, messages and gathers are split. With the default they are not.
	largest, _ := strconv.Atoi(os.Getenv("MT_TEST_LARGEST"))
	w, err := cluster.Start(cluster.Find(cluster.ThisMachine(), l), l, cluster.Options{Largest: largest})
	if err != nil {
		return 1, err
	}
	switch what {
	case "conform":
		if err := conform(w, 7); err != nil {
			return 1, err
		}
		fmt.Printf("rank %d of %d conforms\n", w.Rank(), w.Size())
	case "leave": // with a code of its own, agreed with the others
		return 3, w.Close()
	case "abort", "exit":
		c, err := w.NewComm("end")
		if err != nil {
			return 1, err
		}
		if err := cluster.Barrier(c); err != nil || w.Rank() == 0 {
			_, err = cluster.Gather(c, []byte{1}) // which rank 1 never joins
			return 1, errors.Join(err, errors.New("the wait has ended"))
		}
		if what == "exit" {
			return 5, nil
		}
		w.Abort("the disk is full")
	}
	return 0, nil
}

// as runs the test program as n ranks under mpirun; each does the task called `what`. said has the
// standard error of each rank.
func as(t *testing.T, n int, what string, env ...string) (r testkit.RanksResult, said []string) {
	t.Helper()
	return by(t, "mpirun", n, what, env...)
}

// by runs the test program as n ranks under the given launcher; each does the task called `what`.
// said has the standard error of each rank.
func by(t *testing.T, launcher string, n int, what string, env ...string) (r testkit.RanksResult, said []string) {
	t.Helper()
	program := testkit.Must(os.Executable())(t)
	dir := t.TempDir()
	r = testkit.RunRanksBy(t, launcher, n, append(env, asRank+"="+what, "MT_TEST_SAYS="+dir), program)
	for rank := range n {
		text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank)))
		if err != nil {
			t.Errorf("%v\n%s%s", err, r.Stdout, r.Stderr)
		}
		said = append(said, string(text))
	}
	return r, said
}

// TestMPIConforms: ranks that are processes connected by MPI do what cluster.World promises, also
// if messages are split.
func TestMPIConforms(t *testing.T) {
	testkit.NotShort(t)
	for n, largest := range map[int]string{2: "5000", 3: "113"} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			r, said := as(t, n, "conform", "MT_TEST_LARGEST="+largest)
			for rank := range n {
				if want := fmt.Sprintf("rank %d of %d conforms\n", rank, n); !strings.Contains(r.Stdout, want) {
					t.Errorf("output lacks %q", want)
				}
			}
			if t.Failed() || r.Code != 0 {
				t.Errorf("exit code %d, the ranks said %q\n%s%s", r.Code, said, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestMPIEnds: one rank can end all ranks, and the processes exit with the code that belongs to the
// way of ending. A library that does not match the launcher is reported.
func TestMPIEnds(t *testing.T) {
	testkit.NotShort(t)
	for what, tt := range map[string]struct {
		code int // 0: any but 0
		says string
	}{
		"abort":  {0, ": the disk is full\n"},
		"exit":   {0, ""},
		"leave":  {3, ""},
		"misfit": {0, " of 2: it does not go with what started it"},
	} {
		t.Run(what, func(t *testing.T) {
			r, said := as(t, 2, what)
			silent, says := said[0], said[1]
			if what == "misfit" { // both ranks are, and one may end the other first
				silent, says = "", silent+says
			}
			if r.Code == 0 || tt.code != 0 && r.Code != tt.code || !strings.Contains(says, tt.says) || silent != "" {
				t.Errorf("exit code %d, the ranks said %q\n%s%s", r.Code, said, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestMPIEndsEarly: if a rank fails before it starts MPI, the other ranks end too and do not wait
// for it.
func TestMPIEndsEarly(t *testing.T) {
	testkit.NotShort(t)
	for launcher, code := range map[string]int{
		"mpirun":       0, // any but 0: that of Open MPI 5 may fail an assertion of its own
		"mpirun.mpich": 4,
	} {
		t.Run(launcher, func(t *testing.T) {
			if r, said := by(t, launcher, 2, "early"); r.Code == 0 || code != 0 && r.Code != code {
				t.Errorf("exit code %d, the ranks said %q\n%s%s", r.Code, said, r.Stdout, r.Stderr)
			}
		})
	}
}

// together runs f on each of n local ranks, which are all in this process, and waits for all.
func together(t *testing.T, n int, o cluster.LocalOptions, f func(cluster.World) error) {
	t.Helper()
	done := make(chan error, n)
	for _, w := range cluster.LocalWorlds(n, o) {
		go func() { done <- f(w) }()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestLocalConforms: ranks in one process do what cluster.World promises, in whatever random order
// completions are reported.
func TestLocalConforms(t *testing.T) {
	seeds := 2
	if !testing.Short() {
		seeds = testkit.Count(t, 20, 5)
	}
	for n := 2; n <= 5; n++ {
		for seed := range uint64(seeds) {
			together(t, n, cluster.LocalOptions{Seed: seed, Delay: time.Duration(seed%2) * 100 * time.Microsecond}, func(w cluster.World) error {
				if err := conform(w, seed); err != nil {
					return fmt.Errorf("%d ranks, seed %d: %w", n, seed, err)
				}
				return w.Close()
			})
		}
	}
}

// TestLocalAbort: if a local rank aborts, pending and later operations of all ranks fail. The error
// says which rank ended the run and why.
func TestLocalAbort(t *testing.T) {
	const want = "rank 2 ended the run: the disk is full"
	var waiting sync.WaitGroup
	waiting.Add(2)
	together(t, 3, cluster.LocalOptions{}, func(w cluster.World) error {
		c, err := w.NewComm("end")
		if err == nil {
			err = cluster.Barrier(c)
		}
		if err != nil {
			return err
		}
		early := make(chan error, 1)
		if w.Rank() == 2 {
			waiting.Wait()
			w.Abort("the disk is full")
			w.Abort("something that comes of it")
			early <- errors.New(want)
		} else {
			c.AllGather([]byte{1}, func(_ [][]byte, err error) { early <- err })
			waiting.Done()
		}
		for _, begin := range []func() error{
			func() error { return <-early },
			func() error { _, err := cluster.Gather(c, []byte{1}); return err },
			func() error {
				if w.Rank() == 0 { // the others do not wait for it
					return errors.New(want)
				}
				_, err := w.NewComm("more")
				return err
			},
			w.Close,
		} {
			if err := begin(); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("rank %d: %v, want %s", w.Rank(), err, want)
			}
		}
		return nil
	})
}

// TestLocalTellsMisuse: ranks that begin different operations get an error that shows the difference. A rank that
// closes too early gets one too.
func TestLocalTellsMisuse(t *testing.T) {
	for want, begin := range map[string]func(w cluster.World, c cluster.Comm, done func(error)){
		"rank 0 began AllGatherV and rank 1 AllToAllV": func(w cluster.World, c cluster.Comm, done func(error)) {
			if w.Rank() == 0 {
				c.AllGatherV(nil, []int{0, 0}, done)
				return
			}
			c.AllToAllV(nil, []int{0, 0}, nil, []int{0, 0}, done)
		},
		"counts are [1 0] on rank 0 and [0 1] on rank 1": func(w cluster.World, c cluster.Comm, done func(error)) {
			c.AllGatherV(make([]byte, 1), []int{1 - w.Rank(), w.Rank()}, done)
		},
		"rank 1 sends 1 bytes to rank 0, which expects 0": func(w cluster.World, c cluster.Comm, done func(error)) {
			c.AllToAllV(make([]byte, w.Rank()), []int{w.Rank(), 0}, nil, []int{0, 0}, done)
		},
	} {
		together(t, 2, cluster.LocalOptions{}, func(w cluster.World) error {
			c, err := w.NewComm("misuse")
			if err != nil {
				return err
			}
			err = cluster.Wait(func(done func(error)) { begin(w, c, done) })
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("rank %d: %v, want %s", w.Rank(), err, want)
			}
			return w.Close()
		})
	}
	first := cluster.LocalWorlds(2, cluster.LocalOptions{})
	made := make(chan cluster.Comm)
	for _, w := range first {
		go func() { c, _ := w.NewComm("early"); made <- c }()
	}
	c := <-made
	<-made
	c.AllGather(nil, func([][]byte, error) {})
	if a, b := first[0].Close(), first[1].Close(); (a == nil) == (b == nil) {
		t.Errorf("one rank has an operation under way and the other has not: closing says %v and %v", a, b)
	}
}

// TestMeasure: all ranks get the same rates from Measure, although each has measured other times.
func TestMeasure(t *testing.T) {
	const n = 3
	got := make([]cluster.Rates, n)
	together(t, n, cluster.LocalOptions{Delay: 50 * time.Microsecond}, func(w cluster.World) error {
		c, err := w.NewComm("rates")
		if err == nil {
			got[w.Rank()], err = cluster.Measure(w, c, 1000)
		}
		return errors.Join(err, w.Close())
	})
	for rank, r := range got {
		if r != got[0] || r.AllToAll <= 0 || r.AllGather <= 0 || r.Latency <= 0 {
			t.Errorf("rank %d: %+v, and rank 0: %+v", rank, r, got[0])
		}
	}
}

// clocked is a World and a Comm for one of two ranks. Its exchanges take known times on a fake
// clock. The other rank always takes twice as long.
type clocked struct {
	cluster.World
	cluster.Comm
	toAll, gather, small time.Duration
	began                *int // exchanges: of four the first is the fastest, and the third takes toAll or gather
}

func (clocked) Size() int { return 2 }
func (clocked) Rank() int { return 0 }

func (c clocked) AllGather(value []byte, done func([][]byte, error)) {
	time.Sleep(c.small)
	other := bytes.Clone(value)
	if len(value) == 8 {
		binary.LittleEndian.PutUint64(other, math.Float64bits(2*math.Float64frombits(binary.LittleEndian.Uint64(value))))
	}
	done([][]byte{value, other}, nil)
}

func (c clocked) exchange(took time.Duration, done func(error)) {
	time.Sleep(took * [...]time.Duration{1, 6, 2, 4}[*c.began%4] / 2)
	*c.began++
	done(nil)
}

func (c clocked) AllGatherV(_ []byte, _ []int, done func(error)) { c.exchange(c.gather, done) }

func (c clocked) AllToAllV(_ []byte, _ []int, _ []byte, _ []int, done func(error)) {
	c.exchange(c.toAll, done)
}

// TestMeasuredRates: a measured rate is half of the buffer divided by the slower rank's best time.
// Half of the buffer is what leaves or reaches one of two ranks.
func TestMeasuredRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clocked{toAll: 4 * time.Millisecond, gather: 2 * time.Millisecond, small: time.Millisecond, began: new(int)}
		got, err := cluster.Measure(c, c, 8e6)
		want := cluster.Rates{AllToAll: 4e6 / (2 * 4e-3), AllGather: 4e6 / (2 * 2e-3), Latency: 2e-3}
		near := func(a, b float64) bool { return math.Abs(a/b-1) < 1e-6 }
		if err != nil || !near(got.AllToAll, want.AllToAll) || !near(got.AllGather, want.AllGather) || !near(got.Latency, want.Latency) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}

// broken is clocked, but with large exchanges that fail.
type broken struct {
	clocked
	toAll, gather error
}

func (b broken) AllToAllV(_ []byte, _ []int, _ []byte, _ []int, done func(error)) {
	b.exchange(0, func(error) { done(b.toAll) })
}

func (b broken) AllGatherV(_ []byte, _ []int, done func(error)) {
	b.exchange(0, func(error) { done(b.gather) })
}

// TestMeasuringFails: if an exchange fails, Measure returns its error and no rates.
func TestMeasuringFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("the link is down")
		for _, b := range []broken{{toAll: failure}, {gather: failure}} {
			b.clocked = clocked{small: 1, began: new(int)}
			if got, err := cluster.Measure(b, b, 8e6); !errors.Is(err, failure) {
				t.Errorf("rates %+v, error %v, want %v", got, err, failure)
			}
		}
	})
}
