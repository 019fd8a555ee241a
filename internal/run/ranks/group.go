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

// Group is one rank's view of the ranks of a run. Alone makes the group of a process that trains alone. The pipeline
// gets the group as its cluster.World. All communicators are created at the start, because later some operation is
// always in progress.
type Group struct {
	cluster.World
	comms     map[string]cluster.Comm
	meets     cluster.Comm // for Meet
	heartbeat *heartbeat   // nil: this process trains alone
	log       io.Writer    // this rank's log; nil: none

	// Asked is done when this rank was asked to stop; Halted is done when the ranks have agreed to stop.
	Asked, Halted context.Context
	Halt          context.CancelCauseFunc

	mu   sync.Mutex
	over error // the ranks' common error; nil: none, or they have not ended (see left)
	left bool  // the ranks have ended together
}

// Names of the communicators, each for one kind of exchange among all ranks: first the pipeline's, then those of this
// package.
var commNames = []string{"gradients", "weights", "agreement", "norm", "balance", CheckpointComm, heartbeatComm, runComm}

const (
	CheckpointComm = "checkpoint"
	heartbeatComm  = "pulse"
	runComm        = "run"
)

// newGroup creates the group of this rank in the world w with all communicators. It waits until all ranks do the same.
// ctx is done when this rank is asked to stop. beat configures the heartbeat.
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

// Alone returns the group of a process that trains alone. ctx is done when the process is asked to stop.
func Alone(ctx context.Context) *Group {
	return &Group{World: solo{}, Asked: ctx, Halted: ctx, Halt: func(error) {}}
}

// solo is the cluster.World of a process that trains alone: one rank, which exchanges nothing.
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

// Exchange returns the World for the pipeline; nil: this process trains alone.
func (t *Group) Exchange() cluster.World {
	if t.Size() == 1 {
		return nil // a nil interface, not an interface that holds a nil pointer
	}
	return t
}

// NewComm implements cluster.World with the communicators from the start. A communicator may be requested again when
// nothing is in progress on it.
func (t *Group) NewComm(name string) (cluster.Comm, error) {
	c := t.comms[name]
	if c == nil {
		return nil, fmt.Errorf("there is no communicator %q", name)
	}
	return c, nil
}

// First reports whether this rank is rank 0, which prints and writes. A process alone is rank 0.
func (t *Group) First() bool { return t.Rank() == 0 }

// Neighbours returns the number of ranks on this rank's host and this rank's index among them.
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

// Named returns the name of a rank in messages, such as "rank 1 on host2".
func (t *Group) Named(rank int) string { return fmt.Sprintf("rank %d on %s", rank, t.Hosts()[rank]) }

// Fact is a value that must be equal on all ranks.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Way   string `json:"way"` // advice when it differs
}

// Said is a rank's message to the others when all ranks meet (Meet).
type Said struct {
	At    string          `json:"at"`              // this rank's place in the run
	Stop  bool            `json:"stop"`            // this rank was asked to stop
	Facts []Fact          `json:"facts,omitempty"` // values that must be equal
	Value json.RawMessage `json:"value,omitempty"` // any other value

	Ends   bool   `json:"ends"`            // the rank cannot continue, or is done
	Error  string `json:"error,omitempty"` // why it cannot continue
	Kind   kind   `json:"kind"`
	Agreed bool   `json:"agreed"` // all ranks know that all end for this reason
}

// kind classifies the error with which a rank ends, to choose one error for the whole run.
type kind int

// The kinds by priority. The run ends with the highest kind of any rank.
const (
	ofNothing      kind = iota
	ofResuming          // ErrResumable
	ofInterrupting      // ErrInterrupted
	ofLogging           // a *noLog; another rank may have an error that says more
	ofUsage             // config.UsageError
	ofFailing           // anything else
)

// kindOf returns the kind of an error.
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

// agreedError is the error with which all ranks end, after they have exchanged it.
type agreedError struct {
	text string
	is   error
}

// Error implements error.
func (e *agreedError) Error() string { return e.text }

// Unwrap returns the error's kind: ErrResumable or ErrInterrupted.
func (e *agreedError) Unwrap() error { return e.is }

// Meet waits until all ranks have called it with the same place at. It exchanges their messages and returns them in
// rank order. The error is the same on all ranks: a rank cannot continue, or facts differ. After an error the run is
// over.
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

// Tell is Meet for messages of type T: all ranks call it at the same place with their value mine. It returns the
// values of all ranks in rank order. facts must be equal on all ranks.
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

// apart returns the error for ranks that call Meet at different places of a run (all has their messages). That is a
// defect of mt.
func (t *Group) apart(all []Said) error {
	var where []string
	for r, s := range all {
		where = append(where, fmt.Sprintf("rank %d: %s", r, s.At))
	}
	return fmt.Errorf("the ranks are not at the same point of the run, which is a defect of mt: %s", strings.Join(where, ", "))
}

// worst returns the error with which the run ends if ranks cannot continue, according to their messages in all; nil if
// all ranks can. An error that all ranks share is printed once. Otherwise the text names the ranks.
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
	if !agreed && (len(texts) > 1 || of[0] > 0) { // if all ranks end for the same reason, rank 0's text alone is best
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

// alike returns an error if a fact in some rank's message differs from rank 0's fact of the same name.
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
			if theirs.Way != way { // one rank was given the value, the other has chosen it
				way = SameConfig
			}
			return config.Usagef("%s is %s on %s and %s on %s: %s", f.Name, f.Value, t.Named(0), theirs.Value, t.Named(r), way)
		}
	}
	return nil
}

// ended reports whether all ranks have ended together (left). err is then their common error, or nil for success.
func (t *Group) ended() (err error, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over, t.left
}

// leave records that all ranks have ended with the common error err, and stops the heartbeat.
func (t *Group) leave(err error) {
	t.mu.Lock()
	t.over, t.left = err, true
	t.mu.Unlock()
	t.heartbeat.stop()
}

// agreed reports whether err is an ending that every rank reaches at the same step by itself. Such ranks need not tell
// each other. It is success, too many non-finite steps, or a stop on which the ranks have agreed.
func (t *Group) agreed(err error) bool {
	var gave *actors.NonFiniteError
	return err == nil || errors.As(err, &gave) || t.Halted.Err() != nil && errors.Is(err, settings.ErrInterrupted)
}

// End ends this rank's part of the run with err (nil: success) and returns the error with which the run has ended. A
// rank that cannot continue tells the others at the next Meet. If they do not come soon, it aborts the run for all,
// and with MPI does not return. In all other cases it waits for the others as long as they run; the heartbeat detects
// a dead rank.
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
		if err == nil { // the connection between the ranks is broken
			err = e
		}
	case <-late:
	}
	t.heartbeat.quit()
	t.abort(err.Error())
	return err
}

// Stopped reports whether the run should end before its last step: ctx is done for a single rank, or the ranks have
// agreed to stop.
func (t *Group) Stopped(ctx context.Context) bool {
	if t.Size() > 1 {
		ctx = t.Halted
	}
	return ctx.Err() != nil
}
