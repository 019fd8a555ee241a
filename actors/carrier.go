package actors

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// protoCarrier is the carrier of real runs: every process is an actor of protoactor, and
// every work a goroutine.
type protoCarrier struct {
	system *actor.ActorSystem
	pids   map[address]*actor.PID
	works  sync.WaitGroup // that have been begun
}

func newProtoCarrier() *protoCarrier {
	quiet := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
	return &protoCarrier{pids: map[address]*actor.PID{}, system: actor.NewActorSystem(actor.WithLoggerFactory(quiet))}
}

func (c *protoCarrier) start(s *process) error {
	pid, err := c.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return s }), s.id.String())
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
	c.system.Shutdown()
}

// Receive implements actor.Actor.
func (s *process) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		s.hub.handle(s, m)
	}
}
