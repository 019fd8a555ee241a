package ranks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/actors"
	"mt/base/cluster"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// asGroup runs f on n ranks in this process, each with its Group, and returns the ranks' errors.
func asGroup(t *testing.T, n int, b settings.Heartbeat, f func(*Group) error) []error {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for r, w := range cluster.LocalWorlds(n, cluster.LocalOptions{Seed: uint64(n)}) {
		all.Go(func() {
			group, err := newGroup(t.Context(), w, b)
			if err != nil { // another has ended the run already
				errs[r] = err
				return
			}
			errs[r] = group.End(f(group))
			if _, left := group.ended(); left {
				if err := w.Close(); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
	all.Wait()
	return errs
}

// TestGroupEnds: for every combination of endings, all ranks end with one error, and it names the
// ranks from which it comes.
func TestGroupEnds(t *testing.T) {
	usage, broken := config.Usagef("run.yaml:3:1: what is this"), errors.New("the disk is full")
	resumable := fmt.Errorf("%w (so)", settings.ErrResumable)
	for name, tt := range map[string]struct {
		of    func(rank int) error
		want  string // empty: none
		kind  error
		usage bool
	}{
		"well":            {func(int) error { return nil }, "", nil, false},
		"all wrong alike": {func(int) error { return usage }, "run.yaml:3:1: what is this", nil, true},
		"one wrong":       {only(1, usage), "rank 1 on host 1: run.yaml:3:1: what is this", nil, true},
		"the first wrong": {only(0, broken), "the disk is full", nil, false},
		"no log":          {only(1, &noLog{errors.New("so")}), "rank 1 on host 1: output_dir: so: give a directory that every rank can write its log to", nil, true},
		"no log, and wrong": {func(r int) error {
			if r > 0 {
				return &noLog{errors.New("so")}
			}
			return usage
		}, "run.yaml:3:1: what is this", nil, true},
		"two wrong": {func(r int) error { return fmt.Errorf("disk %d is full", r) }, "rank 0 on host 0: disk 0 is full; rank 1 on host 1: disk 1 is full; rank 2 on host 2: disk 2 is full", nil, false},
		"stopped":   {func(int) error { return resumable }, resumable.Error(), settings.ErrResumable, false},
		"one stopped": {func(r int) error {
			if r == 0 {
				return resumable
			}
			return nil
		}, resumable.Error(), settings.ErrResumable, false},
		"stopped, and a defect": {func(r int) error {
			if r == 1 {
				return broken
			}
			return resumable
		}, "rank 1 on host 1: the disk is full", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			for rank, err := range asGroup(t, 3, inTime(nil), func(group *Group) error { return tt.of(group.Rank()) }) {
				switch {
				case tt.want == "":
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				case err == nil || err.Error() != tt.want || config.IsUsage(err) != tt.usage || tt.kind != nil && !errors.Is(err, tt.kind) ||
					tt.kind == nil && errors.Is(err, settings.ErrInterrupted):
					t.Errorf("rank %d: %v (usage: %t), want %s", rank, err, config.IsUsage(err), tt.want)
				}
			}
		})
	}
}

// only returns a function that returns err on the given rank and nil on the others.
func only(rank int, err error) func(int) error {
	return func(r int) error {
		if r == rank {
			return err
		}
		return nil
	}
}

// TestGroupAborts: a rank fails while the others wait in an exchange that it never joins. The run
// is then aborted on all ranks with its error.
func TestGroupAborts(t *testing.T) {
	late := make(chan time.Time)
	close(late)
	b := inTime(nil)
	usual := b.After
	b.ExitWait = 5
	b.After = func(d time.Duration) <-chan time.Time {
		if d == b.ExitWait {
			return late
		}
		return usual(d)
	}
	for rank, err := range asGroup(t, 3, b, func(group *Group) error {
		if group.Rank() == 1 {
			return errors.New("the disk is full")
		}
		c, err := group.NewComm("gradients")
		if err == nil {
			_, err = cluster.Gather(c, []byte{1}) // which rank 1 never joins
		}
		return err
	}) {
		if err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestGroupWaits: ranks that have agreed to end wait for a rank that is still writing. All of them return rank 0's
// text.
func TestGroupWaits(t *testing.T) {
	testkit.NotShort(t)
	for name, why := range map[string]error{"stopped": fmt.Errorf("%w, so", settings.ErrResumable), "not finite": &agreedError{"three steps were not finite", &actors.NonFiniteError{Step: 3}}} {
		t.Run(name, func(t *testing.T) {
			given := make(chan struct{})
			var once sync.Once
			b := inTime(nil)
			usual := b.After
			b.ExitWait = 5
			b.After = func(d time.Duration) <-chan time.Time {
				if d != b.ExitWait {
					return usual(d)
				}
				once.Do(func() { close(given) }) // the others give up at once
				late := make(chan time.Time)
				close(late)
				return late
			}
			errs := asGroup(t, 3, b, func(group *Group) error {
				if _, err := group.Meet("there", Said{Stop: true}); err != nil {
					return err
				}
				if group.Rank() > 0 {
					return why
				}
				select { // while it writes
				case <-given:
				case <-time.After(50 * time.Millisecond):
				}
				return fmt.Errorf("%w; and what to do", why)
			})
			for rank, err := range errs {
				if err == nil || err.Error() != why.Error()+"; and what to do" {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

// TestGroupMeets: ranks exchange values in rank order, stop together, and report a rank whose facts differ.
func TestGroupMeets(t *testing.T) {
	for rank, err := range asGroup(t, 3, inTime(nil), func(group *Group) error {
		values, err := Tell(group, "here", 10*group.Rank(), Fact{"a", "x", "mend it"})
		if err != nil || fmt.Sprint(values) != "[0 10 20]" {
			return fmt.Errorf("values %v, %w", values, err)
		}
		if _, err := group.Meet("there", Said{Stop: group.Rank() == 2}); err != nil || group.Halted.Err() == nil || !errors.Is(context.Cause(group.Halted), settings.ErrInterrupted) {
			return fmt.Errorf("halted: %v, %w", group.Halted.Err(), err)
		}
		same := Fact{"a", "x", "mend it"}
		_, err = group.Meet("everywhere", Said{Facts: []Fact{same, {"b", fmt.Sprint(group.Rank() / 2), "bring b up to date"}}})
		return err
	}) {
		if want := "b is 0 on rank 0 on host 0 and 1 on rank 2 on host 2: bring b up to date"; err == nil || err.Error() != want || !config.IsUsage(err) {
			t.Errorf("rank %d: %v, want %s", rank, err, want)
		}
	}
	for rank, err := range asGroup(t, 2, inTime(nil), func(group *Group) error {
		if group.Rank() == 0 {
			return nil // it is done, and the other is not
		}
		_, err := group.Meet("somewhere", Said{})
		return err
	}) {
		if want := "rank 0: the end, rank 1: somewhere"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want %s", rank, err, want)
		}
	}
	for rank, err := range asGroup(t, 2, inTime(nil), func(group *Group) error {
		_, err := group.Meet(fmt.Sprint("place ", group.Rank()), Said{})
		return err
	}) {
		if want := "rank 0: place 0, rank 1: place 1"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want %s", rank, err, want)
		}
	}
}
