package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"mt/actors"
	"mt/base/cluster"
	"mt/internal/run/config"
	"mt/internal/run/settings"
)

// Group is one rank's view of the ranks of a run. Alone makes the group of a process that trains alone. The
// pipeline gets the group as its cluster.World. All communicators are made at the start, because later some
// operation is always under way.
type Group struct {
	cluster.World
	comms     map[string]cluster.Comm
	meets     cluster.Comm // for Meet, between the parts of a run
	heartbeat *heartbeat   // nil: this process trains alone
	log       io.Writer    // of this rank; nil: it has none

	// asked is done when this rank was asked to stop, halted when the ranks have agreed to.
	Asked, Halted context.Context
	Halt          context.CancelCauseFunc

	mu   sync.Mutex
	over error // how the ranks have ended together; nil: they have not, see left
	left bool  // the ranks have ended together
}

// The names of the communicators: those of the pipeline, and those of this package.
var commNames = []string{"gradients", "weights", "agreement", "norm", "balance", CheckpointComm, heartbeatComm, runComm}

const (
	CheckpointComm = "checkpoint"
	heartbeatComm  = "pulse"
	runComm        = "run"
)

// newGroup makes the communicators; each rank waits for the others. ctx is done when this rank is
// asked to stop.
func newGroup(ctx context.Context, w cluster.World, beat settings.Heartbeat) (*Group, error) {
	t := &Group{World: w, comms: map[string]cluster.Comm{}, Asked: ctx}
	for _, name := range commNames {
		c, err := w.NewComm(name)
		if err != nil {
			return nil, fmt.Errorf("rank %d of %d: %w", w.Rank(), w.Size(), err)
		}
		t.comms[name] = c
	}
	t.meets = t.comms[runComm]
	t.Halted, t.Halt = context.WithCancelCause(context.Background())
	t.heartbeat = startHeartbeat(w, t.comms[heartbeatComm], beat, t.abort)
	return t, nil
}

// Alone returns the group of a process that trains alone; ctx is done when the process is asked to stop.
func Alone(ctx context.Context) *Group {
	return &Group{World: solo{}, Asked: ctx, Halted: ctx, Halt: func(error) {}}
}

// solo is a World of one rank.
type solo struct{}

// Rank implements cluster.World.
func (solo) Rank() int { return 0 }

// Size implements cluster.World.
func (solo) Size() int { return 1 }

// Hosts implements cluster.World.
func (solo) Hosts() []string { return []string{"this host"} }

// Abort implements cluster.World.
func (solo) Abort(string) {}

// Close implements cluster.World.
func (solo) Close() error { return nil }

// NewComm implements cluster.World.
func (solo) NewComm(string) (cluster.Comm, error) {
	return nil, errors.New("one rank exchanges nothing")
}

// Exchange is what the pipeline exchanges through; nil: this process trains alone.
func (t *Group) Exchange() cluster.World {
	if t.Size() == 1 {
		return nil // and not an interface that holds a nil
	}
	return t
}

// NewComm implements cluster.World with the communicators that were made at the start. The same
// one may be asked for again when nothing is under way on it any more.
func (t *Group) NewComm(name string) (cluster.Comm, error) {
	c := t.comms[name]
	if c == nil {
		return nil, fmt.Errorf("there is no communicator %q", name)
	}
	return c, nil
}

// First says whether this rank is the one that prints and writes, which it is alone too.
func (t *Group) First() bool { return t.Rank() == 0 }

// Neighbours are how many ranks there are on this rank's host, and which of them it is.
func (t *Group) Neighbours() (index, count int) {
	hosts := t.Hosts()
	for r, host := range hosts {
		if host == hosts[t.Rank()] {
			if r < t.Rank() {
				index++
			}
			count++
		}
	}
	return index, count
}

// Named is a rank for messages.
func (t *Group) Named(rank int) string { return fmt.Sprintf("rank %d on %s", rank, t.Hosts()[rank]) }

// Fact is something that all ranks must have alike.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Way   string `json:"way"` // what to do where they differ
}

// Said is what a rank tells the others where they meet.
type Said struct {
	At    string          `json:"at"`              // where this rank is
	Stop  bool            `json:"stop"`            // it was asked to stop
	Facts []Fact          `json:"facts,omitempty"` // what must be alike
	Value json.RawMessage `json:"value,omitempty"` // what else it has to tell

	Ends   bool   `json:"ends"`            // it cannot go on, or is done
	Error  string `json:"error,omitempty"` // why it cannot go on
	Kind   kind   `json:"kind"`
	Agreed bool   `json:"agreed"` // all ranks end for the same reason, and know it
}

// kind is what sort of error ends a rank's part.
type kind int

// The kinds. The greatest of all ranks is what the run ends with.
const (
	ofNothing      kind = iota
	ofResuming          // ErrResumable
	ofInterrupting      // ErrInterrupted
	ofLogging           // a *noLog: another rank may have a better word for it
	ofUsage             // config.UsageError
	ofFailing           // anything else
)

// kindOf sorts an error.
func kindOf(err error) kind {
	switch {
	case err == nil:
		return ofNothing
	case errors.Is(err, settings.ErrResumable):
		return ofResuming
	case errors.Is(err, settings.ErrInterrupted):
		return ofInterrupting
	case errors.As(err, new(*noLog)):
		return ofLogging
	case config.IsUsage(err):
		return ofUsage
	}
	return ofFailing
}

// agreedError is an error that the ranks have sent each other.
type agreedError struct {
	text string
	is   error
}

// Error implements error.
func (e *agreedError) Error() string { return e.text }

// Unwrap is what kind of error it is.
func (e *agreedError) Unwrap() error { return e.is }

// Meet waits until all ranks are where this one is, and tells them what it has to say. Its result
// is what each has said, in rank order. The error, which is the same on all ranks, is of a rank
// that cannot go on, or of facts that differ; the run is over then.
func (t *Group) Meet(at string, mine Said) ([]Said, error) {
	if err, left := t.ended(); left {
		return nil, err
	}
	if t.Size() == 1 {
		return []Said{mine}, nil
	}
	mine.At, mine.Stop = at, mine.Stop || t.Asked.Err() != nil
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := cluster.GatherAll(t.World, t.meets, text)
	if err != nil {
		return nil, err
	}
	all := make([]Said, len(texts))
	ends, stop := 0, false
	for r, text := range texts {
		if err := json.Unmarshal(text, &all[r]); err != nil {
			return nil, fmt.Errorf("what %s tells: %w", t.Named(r), err)
		}
		if all[r].Ends {
			ends++
		}
		stop = stop || all[r].Stop
	}
	err = t.worst(all)
	switch {
	case err != nil:
	case ends > 0 && ends < len(all):
		err = t.apart(all)
	case ends == 0:
		for r := range all {
			if all[r].At != at {
				err = t.apart(all)
			}
		}
		if err == nil {
			err = t.alike(all)
		}
	}
	if err != nil || ends > 0 {
		t.leave(err)
		return all, err
	}
	if stop {
		t.Halt(settings.ErrInterrupted)
	}
	return all, nil
}

// Tell is meet for a value of some type: its result is that of each rank.
func Tell[T any](t *Group, at string, mine T, facts ...Fact) ([]T, error) {
	if t.Size() == 1 {
		return []T{mine}, nil
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := t.Meet(at, Said{Facts: facts, Value: text})
	if err != nil {
		return nil, err
	}
	values := make([]T, len(all))
	for r, s := range all {
		if err := json.Unmarshal(s.Value, &values[r]); err != nil {
			return nil, fmt.Errorf("what %s tells: %w", t.Named(r), err)
		}
	}
	return values, nil
}

// apart is the error of ranks that are not where the others are, which is a defect.
func (t *Group) apart(all []Said) error {
	var where []string
	for r, s := range all {
		where = append(where, fmt.Sprintf("rank %d: %s", r, s.At))
	}
	return fmt.Errorf("the ranks are not at the same point of the run, which is a defect of mt: %s", strings.Join(where, ", "))
}

// worst is the error with which the run ends where ranks cannot go on, and nil where all can.
// What all of them say is said once, and what one says with its name.
func (t *Group) worst(all []Said) error {
	most := ofNothing
	for _, s := range all {
		most = max(most, s.Kind)
	}
	if most == ofNothing {
		return nil
	}
	var texts []string
	var of []int
	agreed := true
	for r, s := range all {
		agreed = agreed && s.Agreed && s.Kind == most
		if s.Kind != most {
			continue
		}
		of = append(of, r)
		if !slices.Contains(texts, s.Error) {
			texts = append(texts, s.Error)
		}
	}
	text := texts[0]
	if !agreed && (len(texts) > 1 || of[0] > 0) { // what all of them end for, rank 0 says best
		text = ""
		for i, r := range of {
			if i > 0 {
				text += "; "
			}
			text += t.Named(r) + ": " + all[r].Error
		}
	}
	switch most {
	case ofResuming:
		return &agreedError{text, settings.ErrResumable}
	case ofInterrupting:
		return &agreedError{text, settings.ErrInterrupted}
	case ofLogging, ofUsage:
		return config.Usagef("%s", text)
	}
	return errors.New(text)
}

// alike says what a rank has otherwise than rank 0, if anything.
func (t *Group) alike(all []Said) error {
	for r, s := range all {
		for i, f := range all[0].Facts {
			if i >= len(s.Facts) || s.Facts[i].Name != f.Name {
				return t.apart(all)
			}
			theirs, way := s.Facts[i], f.Way
			if theirs.Value == f.Value {
				continue
			}
			if theirs.Way != way { // one of them was given what the other chose
				way = SameConfig
			}
			return config.Usagef("%s is %s on %s and %s on %s: %s", f.Name, f.Value, t.Named(0), theirs.Value, t.Named(r), way)
		}
	}
	return nil
}

// ended is how the ranks have ended together, if they have.
func (t *Group) ended() (err error, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over, t.left
}

// leave records that all ranks have ended, and stops the heartbeat.
func (t *Group) leave(err error) {
	t.mu.Lock()
	t.over, t.left = err, true
	t.mu.Unlock()
	t.heartbeat.stop()
}

// agreed says whether all ranks end their parts for the reason that err is.
func (t *Group) agreed(err error) bool {
	var gave *actors.NonFiniteError
	return err == nil || errors.As(err, &gave) || t.Halted.Err() != nil && errors.Is(err, settings.ErrInterrupted)
}

// End ends this rank's part with err, nil where all went well, and returns how the run has ended. A
// rank that alone cannot go on tells the others where they meet; where they do not come soon it ends
// the run for all, and with MPI does not return. All others come, however long what they still write
// takes: the heartbeat notices one that does not.
func (t *Group) End(err error) error {
	if t.Size() == 1 {
		return err
	}
	if over, left := t.ended(); left {
		return over
	}
	s := Said{Ends: true, Kind: kindOf(err), Agreed: t.agreed(err)}
	if err != nil {
		s.Error = err.Error()
	}
	met := make(chan error, 1)
	go func() {
		_, e := t.Meet("the end", s)
		met <- e
	}()
	var late <-chan time.Time
	if !s.Agreed {
		late = t.heartbeat.After(t.heartbeat.ExitWait)
	}
	select {
	case e := <-met:
		if _, left := t.ended(); left {
			return e
		}
		if err == nil { // what carries the ranks' words is broken
			err = e
		}
	case <-late:
	}
	t.heartbeat.quit()
	t.abort(err.Error())
	return err
}

// Stopped says whether the run is to end before its last step: ctx is done where a rank trains alone,
// and several have agreed to.
func (t *Group) Stopped(ctx context.Context) bool {
	if t.Size() > 1 {
		ctx = t.Halted
	}
	return ctx.Err() != nil
}
