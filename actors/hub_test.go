package actors

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"mt/data"
	"mt/internal/testkit"
	"mt/layers/schedule"
)

// TestPanicEndsTheRun: a core that panics ends the run, as any other fault does. The error names
// the actor, and no actor is restarted.
func TestPanicEndsTheRun(t *testing.T) {
	tr := base()
	tr.batch = func(_ int, b *data.Batch) {
		b.MicroBatches[0].Index[0] = 1 << 20 // outside the gathered rows
	}
	if _, err := tr.run(t); err == nil || !strings.Contains(err.Error(), "GatherRows: Index[0] is 1048576") ||
		!strings.HasPrefix(err.Error(), "compute layer 0 forward step 1: ") {
		t.Errorf("an index outside the table: %v", err)
	}
	tr = base()
	tr.batch = func(_ int, b *data.Batch) { b.UniqueIDs[0] = -1 } // the host's gather panics
	if _, err := tr.run(t); err == nil || !strings.HasPrefix(err.Error(), "prefetcher: broken invariant: ") {
		t.Errorf("a panic on a goroutine of the prefetcher: %v", err)
	}
	tr = base()
	tr.lr = func(int) float64 { panic("no such rate") } // inside the conductor's core
	if _, err := tr.run(t); err == nil || !strings.HasPrefix(err.Error(), "conductor: broken invariant: no such rate") {
		t.Errorf("a panic in a core: %v", err)
	}
}

// talk runs one actor, beside a conductor that only listens. It sends msg to the actor and returns
// the messages that the conductor receives.
func talk(t *testing.T, s *process, msg message) []message {
	t.Helper()
	h := newHub(newProtoCarrier())
	heard := &listener{got: make(chan message, 8)}
	for _, sh := range []*process{{id: conductorID, core: heard}, s} {
		testkit.NoError(t, h.spawn(sh))
	}
	h.tell(s.id, msg)
	out := []message{<-heard.got}
	h.close()
	close(heard.got)
	for m := range heard.got {
		out = append(out, m)
	}
	return out
}

type listener struct{ got chan message }

func (l *listener) step(msg message) []effect { l.got <- msg; return nil }

// stranger is a message that no core handles.
type stranger struct{}

func (stranger) isMessage() {}

// TestUnknownMessages: every actor's core panics on a message that it does not handle, so that no
// message is lost silently.
func TestUnknownMessages(t *testing.T) {
	quiet := func(work) error { return nil }
	cores := map[address]core{feederID: &feederCore{}, laneID(0).prefetcher(): newPrefetcherCore(prefetcherSpec{experts: true, weightsOnDisk: []bool{true}}, 0), laneID(0).compute(): newComputeCore(computeSpec{experts: true}),
		laneID(0).offloader(): newOffloaderCore(offloaderSpec{own: 3}), optimizerID: newOptimizerCore(optimizerSpec{lanes: 1, clip: 1, into: ids(3)}, State{}), checkpointerID: newCheckpointerCore(3, 0), reporterID: reporterCore{}}
	for id, c := range cores {
		got := talk(t, &process{id: id, core: c, exec: quiet}, stranger{})
		f, ok := got[0].(Failed)
		if want := id.String() + ": unexpected message actors.stranger"; !ok || len(got) != 1 || f.Actor != id || !strings.Contains(f.Err.Error(), want) {
			t.Errorf("%s answers %v, want %q", id, got, want)
		}
	}
	func() {
		defer func() {
			if p := recover(); p != "conductor: unexpected message actors.stranger" {
				t.Errorf("the conductor's panic is %v", p)
			}
		}()
		newConductorCore(Schedule{FirstStep: 1, LastStep: 1}, State{}, 1, schedule.Spec{}).step(stranger{})
	}()
}

// failing is a core that counts its messages and whose works fail.
type failing struct{ steps int }

// it is a task (the action of a work) that only stands in a failing core's effects. The test's
// executor never starts it.
type it struct{}

func (it) start(*lane, work) error { panic("started") }

func (f *failing) step(message) []effect {
	f.steps++
	return []effect{work{do: it{}}, send{conductorID, stranger{}}}
}

// TestFailedWorkStopsItsMessage: if a work cannot be started, the remaining effects of the same
// message are dropped, and the conductor hears of the failure once.
func TestFailedWorkStopsItsMessage(t *testing.T) {
	bad := errors.New("it fails")
	got := talk(t, &process{id: laneID(0).compute(), core: &failing{}, exec: func(work) error { return bad }}, stranger{})
	if f, ok := got[0].(Failed); !ok || len(got) != 1 || f.Actor != laneID(0).compute() || !errors.Is(f.Err, bad) {
		t.Errorf("the conductor heard %v", got)
	}
}

// TestAfterTheEndNothingIsHandled: after the run has ended and its hub is closed, messages reach no
// core and no work starts.
func TestAfterTheEndNothingIsHandled(t *testing.T) {
	carrier := newProtoCarrier()
	h := newHub(carrier)
	c := &failing{}
	s := &process{id: laneID(0).compute(), core: c, exec: func(work) error { return nil }}
	heard := &listener{got: make(chan message, 8)}
	for _, sh := range []*process{{id: conductorID, core: heard}, s} {
		testkit.NoError(t, h.spawn(sh))
	}
	h.close()
	h.handle(s, stranger{})
	h.async(laneID(0).compute(), work{}, func() (any, error) { c.steps++; return nil, nil })
	h.notified(func() { c.steps++ })
	carrier.works.Wait()
	if c.steps != 0 {
		t.Errorf("%d messages, works or notifications ran after the end", c.steps)
	}
}

// TestTheEndWaitsForNotifications: the end of a run waits for all notifications of streams that are
// being handled, because these may read memory that is freed afterwards.
func TestTheEndWaitsForNotifications(t *testing.T) {
	h := newHub(newProtoCarrier())
	ended := make(chan struct{})
	h.notified(func() {
		go func() {
			h.close()
			close(ended)
		}()
		for h.notices.TryRLock() { // fails once close waits
			h.notices.RUnlock()
			select {
			case <-ended:
				t.Fatal("the end did not wait")
			default:
				runtime.Gosched()
			}
		}
		if h.stopped.Load() {
			t.Error("the end did not wait")
		}
	})
	<-ended
}

// TestCreditsAreDocumented: the table of credits in ARCHITECTURE.md equals the table Credits of
// this package.
func TestCreditsAreDocumented(t *testing.T) {
	doc := testkit.Must(os.ReadFile("../ARCHITECTURE.md"))(t)
	_, after, ok := strings.Cut(string(doc), "| credit | key | least | owner | taken by | returned by |\n| --- | --- | --- | --- | --- | --- |\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table of credits")
	}
	table, _, _ := strings.Cut(after, "\n\n")
	if want := creditTable(); table != want {
		t.Errorf("ARCHITECTURE.md says\n%s\nand actors.Credits\n%s", table, want)
	}
}

func creditTable() string {
	var rows []string
	for _, c := range Credits {
		key := " "
		if c.Key != "" {
			key = fmt.Sprintf(" `%s` ", c.Key)
		}
		rows = append(rows, fmt.Sprintf("| %s |%s| %d | %s | `%s` | `%s` |", c.Name, key, c.Minimum, c.Owner, c.Taken, c.Return))
	}
	return strings.Join(rows, "\n")
}
