package actors

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// process is the side of an actor that is not pure: it feeds messages to the core and
// executes the effects. Mailboxes have no bound of their own, because credits bound how
// many messages can be in them.
type process struct {
	id   address
	core core
	exec func(w work) error // starts a work: task.start
	hub  *hub
	mu   sync.Mutex // held while a message is handled
}

// hub connects the processes of one run.
type hub struct {
	carrier
	processes []*process
	stopped   atomic.Bool  // no message is handled and no effect executed any more
	notices   sync.RWMutex // held for reading while a stream tells what is complete
	ended     chan error   // how the run ended, sent once by the Conductor; nil: well
	trace     *tracer      // nil: nobody wants one
}

// carrier carries messages and works: protoactor as time goes by, or a virtual clock.
type carrier interface {
	// start makes an actor ready for messages.
	start(s *process) error
	// tell puts msg into an actor's mailbox.
	tell(to address, msg any)
	// begin calls started and then f, which does w, on a goroutine of their own. On a virtual
	// clock f is called after as long as w is said to take.
	begin(w work, started, f func())
	// result does a work by calling f. On a virtual clock nothing is computed, but what
	// others need is found out.
	result(w work, f func() (any, error)) (any, error)
	// now is the time by which everything in the run is measured, but for what happens on the
	// device.
	now() time.Duration
	// stop waits for the works that were begun, and ends all actors.
	stop()
}

func newHub(c carrier) *hub { return &hub{carrier: c, ended: make(chan error, 1)} }

// spawn starts the actor of s.
func (h *hub) spawn(s *process) error {
	s.hub = h
	if err := h.start(s); err != nil {
		return fmt.Errorf("start actor %s: %w", s.id, err)
	}
	h.processes = append(h.processes, s)
	return nil
}

// fail reports a fault to the Conductor, which ends the run.
func (h *hub) fail(id address, err error) { h.tell(conductorID, Failed{Actor: id, Err: err}) }

// handle runs one message through a core. A panic, which is a broken invariant,
// ends the run like any other fault: no actor is ever restarted.
func (h *hub) handle(s *process, msg any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.stopped.Load() {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			h.fail(s.id, broken(s.id, p))
		}
	}()
	for _, e := range s.core.step(msg) {
		switch e := e.(type) {
		case send:
			h.tell(e.to, e.msg)
		case work:
			if err := s.exec(e); err != nil {
				h.fail(s.id, err)
				return
			}
		}
	}
}

// done sends the messages of a work that is complete, with result in those that are
// findings.
func (h *hub) done(w work, result any) {
	for _, s := range w.completed(result) {
		h.tell(s.to, s.msg)
	}
}

// async does a work of actor id on a goroutine of its own, by calling f. It then sends
// the work's messages with the result, or tells the Conductor of the error.
func (h *hub) async(id address, w work, f func() (result any, err error)) {
	var span *piece
	started := func() {
		if !h.stopped.Load() {
			span = h.trace.begin(id, w.do)
		}
	}
	h.begin(w, started, func() {
		defer func() {
			if p := recover(); p != nil {
				h.fail(id, broken(id, p))
			}
		}()
		if h.stopped.Load() {
			return
		}
		result, err := h.result(w, f)
		h.trace.done(span)
		if err != nil {
			h.fail(id, err)
			return
		}
		h.done(w, result)
	})
}

// notified calls f, by which a stream tells that something is complete, unless the run has ended. f may
// read the lanes' memory, as close waits for it.
func (h *hub) notified(f func()) {
	h.notices.RLock()
	defer h.notices.RUnlock()
	if !h.stopped.Load() {
		f()
	}
}

// close ends all actors and waits for the works that they have started on goroutines, and for what streams
// tell. No effect begins after it returns.
func (h *hub) close() {
	h.notices.Lock()
	h.stopped.Store(true)
	h.notices.Unlock()
	for _, s := range h.processes {
		s.rest()
	}
	h.stop()
}

// broken is the error for a panic of actor id. With MT_DEBUG set it has the stack.
func broken(id address, cause any) error {
	trace := " (a defect of mt; MT_DEBUG=1 shows where)"
	if os.Getenv("MT_DEBUG") != "" {
		trace = "\n" + string(debug.Stack())
	}
	return fmt.Errorf("%s: broken invariant: %v%s", id, cause, trace)
}

// rest waits until the actor has handled the message it is at work on, if any.
func (s *process) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// unexpected is the panic of a core for a message it does not know.
func unexpected(id address, msg any) string { return fmt.Sprintf("%s: unexpected message %T", id, msg) }
