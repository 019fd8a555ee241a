package actors

import (
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// protoCarrier is the carrier of real runs: every process is an actor of protoactor, and
// every work a goroutine.
type protoCarrier struct {
	system *actor.ActorSystem
	prefix string // of this carrier's actors' names in the system
	pids   map[address]*actor.PID
	works  sync.WaitGroup // that have been begun
}

// theSystem returns the program's actor system, which all carriers share: a registry of actors
// has 32,768 maps, which take longer to make than a small run takes.
var theSystem = sync.OnceValue(func() *actor.ActorSystem {
	quiet := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
	return actor.NewActorSystem(actor.WithLoggerFactory(quiet))
})

// carriers counts the carriers of the program.
var carriers atomic.Int64

func newProtoCarrier() *protoCarrier {
	return &protoCarrier{pids: map[address]*actor.PID{}, system: theSystem(), prefix: strconv.FormatInt(carriers.Add(1), 10) + " "}
}

func (c *protoCarrier) start(s *process) error {
	pid, err := c.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return s }), c.prefix+s.id.String())
	if err == nil {
		c.pids[s.id] = pid
	}
	return err
}

func (c *protoCarrier) tell(to address, msg any) { c.system.Root.Send(c.pids[to], msg) }

func (c *protoCarrier) begin(_ work, started, f func()) {
	c.works.Go(func() {
		started()
		f()
	})
}

func (c *protoCarrier) result(_ work, f func() (any, error)) (any, error) { return f() }

// epoch is when the program began: runs that follow each other have one clock.
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
	switch m := ctx.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		s.hub.handle(s, m)
	}
}
