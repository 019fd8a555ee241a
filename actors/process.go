package actors

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"mt/device"
	"mt/layers/schedule"
)

// process is the impure part of an actor. It passes messages to the core and executes the effects. Its mailbox is
// unbounded; credits bound the number of messages in it.
type process struct {
	id   address
	core core
	exec func(w work) error // starts a work with task.start
	hub  *hub
	mu   sync.Mutex // held while a message is handled
}

// hub connects the actors of one run: it delivers their messages and runs their works through the carrier.
type hub struct {
	carrier
	processes []*process
	stopped   atomic.Bool  // no message is handled and no effect executed any more
	notices   sync.RWMutex // read-locked during a stream's notification
	ended     chan error   // how the run ended: the Conductor sends one value; nil means success
	watch     runWatch
}

// runWatch observes the works that a run does on the host, for the timeline. begin returns a record of the work that
// begins, and done gets this record when the work ends.
type runWatch interface {
	begin(id address, do task) *piece
	done(p *piece)
}

// laneWatch observes what is enqueued on the streams of a lane, for the timeline.
type laneWatch interface {
	launch(e enqueue, l schedule.Launch, v schedule.Visit, t *passTimeline)
	copying(s *countedStream, do task)
	matrix(s *countedStream, what string, e orthogonalize)
	marked(t *passTimeline, before device.Event, m mark)
	stepDone(t *passTimeline)
}

// noWatch observes nothing. It is the watch of a run without a timeline.
type noWatch struct{}

func (noWatch) begin(address, task) *piece                                     { return nil }
func (noWatch) done(*piece)                                                    {}
func (noWatch) launch(enqueue, schedule.Launch, schedule.Visit, *passTimeline) {}
func (noWatch) copying(*countedStream, task)                                   {}
func (noWatch) matrix(*countedStream, string, orthogonalize)                   {}
func (noWatch) marked(*passTimeline, device.Event, mark)                       {}
func (noWatch) stepDone(*passTimeline)                                         {}

// carrier delivers messages and runs works. There are two implementations: protoactor and
// goroutines in real time (protoCarrier), and a virtual clock for predictions (prediction).
type carrier interface {
	// start makes an actor ready for messages.
	start(s *process) error
	// tell puts msg into an actor's mailbox.
	tell(to address, msg message)
	// begin does work w: it calls started and then f on a new goroutine. A virtual clock calls f after the predicted
	// duration of w.
	begin(w work, started, f func())
	// now returns the time by the clock of the run's host: real time, or the virtual time of a
	// prediction.
	result(w work, f func() (any, error)) (any, error)
	// now returns the time of everything that is not work of devices.
	now() time.Duration
	// stop waits for the works in progress and then ends all actors.
	stop()
}

func newHub(c carrier) *hub { return &hub{carrier: c, watch: noWatch{}, ended: make(chan error, 1)} }

// spawn connects s to the hub and starts its actor.
func (h *hub) spawn(s *process) error {
	s.hub = h
	if err := h.start(s); err != nil {
		return fmt.Errorf("start actor %s: %w", s.id, err)
	}
	h.processes = append(h.processes, s)
	return nil
}

// fail tells the Conductor that actor id has failed. The Conductor then ends the run.
func (h *hub) fail(id address, err error) { h.tell(conductorID, Failed{Actor: id, Err: err}) }

// handle passes one message to the core of an actor and executes the effects. A panic means a broken invariant and ends
// the run like any other fault. No actor is ever restarted.
func (h *hub) handle(s *process, msg message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.stopped.Load() {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			h.fail(s.id, panicError(s.id, p))
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

// done sends the messages of a completed work. A message that carries the work's result
// (resultMessage) gets it.
func (h *hub) done(w work, result any) {
	for _, s := range w.completed(result) {
		h.tell(s.to, s.msg)
	}
}

// async does work w of actor id: it calls f on a new goroutine. Then it sends the work's messages with f's result, or
// reports f's error to the Conductor.
func (h *hub) async(id address, w work, f func() (result any, err error)) {
	var span *piece
	started := func() {
		if !h.stopped.Load() {
			span = h.watch.begin(id, w.do)
		}
	}
	h.begin(w, started, func() {
		defer func() {
			if p := recover(); p != nil {
				h.fail(id, panicError(id, p))
			}
		}()
		if h.stopped.Load() {
			return
		}
		result, err := h.result(w, f)
		h.watch.done(span)
		if err != nil {
			h.fail(id, err)
			return
		}
		h.done(w, result)
	})
}

// notified calls f, the body of a stream's notification, unless the run has ended. f may use the lanes' memory, because
// close waits until f returns.
func (h *hub) notified(f func()) {
	h.notices.RLock()
	defer h.notices.RUnlock()
	if !h.stopped.Load() {
		f()
	}
}

// close ends all actors. It waits for their works on goroutines and for running notifications of streams. After close
// returns, no effect begins.
func (h *hub) close() {
	h.notices.Lock()
	h.stopped.Store(true)
	h.notices.Unlock()
	for _, s := range h.processes {
		s.waitIdle()
	}
	h.stop()
}

// panicError returns the error that reports a panic of actor id. With MT_DEBUG set, the error includes the stack.
func panicError(id address, cause any) error {
	trace := " (a defect of mt; MT_DEBUG=1 shows where)"
	if os.Getenv("MT_DEBUG") != "" {
		trace = "\n" + string(debug.Stack())
	}
	return fmt.Errorf("%s: broken invariant: %v%s", id, cause, trace)
}

// waitIdle waits until the actor has handled its current message. It returns at once if there is none.
func (s *process) waitIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// unexpected returns the text with which a core panics if it gets a message of a type that it does not know.
func unexpected(id address, msg message) string {
	return fmt.Sprintf("%s: unexpected message %T", id, msg)
}

// core is the pure part of an actor. It answers a message with effects, to be executed in order, and changes only its
// own state.
type core interface {
	step(msg message) []effect
}

// effect is an instruction from a core to its process: to send a message (send) or to begin an action (work).
type effect interface{ effect() }

// send puts msg into the mailbox of to.
type send struct {
	to  address
	msg message
}

func (send) effect() {}

func (s send) String() string { return fmt.Sprintf("→ %s %T%+v", s.to, s.msg, s.msg) }

// work is an action that the process begins for the core. When the action is complete, the messages in done are sent.
// If it fails, Failed goes to the Conductor instead.
type work struct {
	do   task
	done []send
}

// task is the action of a work, such as copying a tile. The interface is closed: each task is in the file of the actor
// that requests it.
type task interface {
	// start begins the task of w. It returns at once; only Compute waits for the device, in a diagnosis. r is the
	// actor's lane, or the first lane if the actor exists once.
	start(r *lane, w work) error
}

func (work) effect() {}

// resultMessage is a message that carries the result of a work. The core makes the message without the result, because
// the work has yet to run. withResult adds the result when the work is complete.
type resultMessage interface {
	withResult(result any) message
}

// completed returns the messages to send after w. A message that carries the work's result
// (resultMessage) gets it.
func (w work) completed(result any) []send {
	out := make([]send, len(w.done))
	for i, s := range w.done {
		if f, ok := s.msg.(resultMessage); ok {
			s.msg = f.withResult(result)
		}
		out[i] = s
	}
	return out
}

// role is the kind of an actor.
type role uint8

// The roles. Every lane has a Prefetcher, a Compute and an Offloader; the others exist once. Exchanger and Gatherer
// exist only with several ranks, the Stager only with states on disks.
const (
	conductorRole role = iota
	feederRole
	prefetcherRole
	computeRole
	offloaderRole
	optimizerRole
	checkpointerRole
	reporterRole
	exchangerRole
	gathererRole
	stagerRole
	numRoles
)

func (r role) String() string {
	return [...]string{"conductor", "feeder", "prefetcher", "compute", "offloader", "optimizer", "checkpointer", "reporter", "exchanger", "gatherer", "stager"}[r]
}

// address identifies one actor of a run.
type address struct {
	role role
	lane laneID // 0 for actors that exist once
}

// String returns, for example, "conductor", "compute" for the first lane or "compute 1" for the second.
func (a address) String() string {
	if a.lane == 0 {
		return a.role.String()
	}
	return fmt.Sprintf("%s %d", a.role, a.lane)
}

// The addresses of the actors that exist once.
var (
	conductorID    = address{role: conductorRole}
	feederID       = address{role: feederRole}
	optimizerID    = address{role: optimizerRole}
	checkpointerID = address{role: checkpointerRole}
	reporterID     = address{role: reporterRole}
	exchangerID    = address{role: exchangerRole}
	gathererID     = address{role: gathererRole}
	stagerID       = address{role: stagerRole}
)

// laneID is the index of a lane, from 0.
type laneID int

func (l laneID) prefetcher() address { return address{role: prefetcherRole, lane: l} }
func (l laneID) compute() address    { return address{role: computeRole, lane: l} }
func (l laneID) offloader() address  { return address{role: offloaderRole, lane: l} }

// protoCarrier is the carrier of real runs. Every process is a protoactor actor, and every work a goroutine.
type protoCarrier struct {
	system *actor.ActorSystem
	prefix string // prefix of the actors' names in the system
	pids   map[address]*actor.PID
	works  sync.WaitGroup // the works in progress
}

// sharedSystem returns the program's only actor system. Creating one allocates 32,768 maps, which takes longer than a
// small run.
var sharedSystem = sync.OnceValue(func() *actor.ActorSystem {
	quiet := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
	return actor.NewActorSystem(actor.WithLoggerFactory(quiet))
})

// carriers counts the carriers made so far. The number makes the names of a carrier's actors unique.
var carriers atomic.Int64

func newProtoCarrier() *protoCarrier {
	return &protoCarrier{pids: map[address]*actor.PID{}, system: sharedSystem(), prefix: strconv.FormatInt(carriers.Add(1), 10) + " "}
}

func (c *protoCarrier) start(s *process) error {
	pid, err := c.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return s }), c.prefix+s.id.String())
	if err == nil {
		c.pids[s.id] = pid
	}
	return err
}

func (c *protoCarrier) tell(to address, msg message) { c.system.Root.Send(c.pids[to], msg) }

func (c *protoCarrier) begin(_ work, started, f func()) {
	c.works.Go(func() {
		started()
		f()
	})
}

func (c *protoCarrier) result(_ work, f func() (any, error)) (any, error) { return f() }

// epoch is the start of the program. Clocks of all runs count from it, so consecutive runs share one clock.
var epoch = time.Now()

func (c *protoCarrier) now() time.Duration { return time.Since(epoch) }

func (c *protoCarrier) stop() {
	c.works.Wait()
	for _, pid := range c.pids {
		c.system.Root.Stop(pid)
	}
}

// Receive implements actor.Actor.
func (s *process) Receive(ctx actor.Context) {
	if m, ok := ctx.Message().(message); ok { // the others are protoactor's own: Started, Stopping, Stopped
		s.hub.handle(s, m)
	}
}
