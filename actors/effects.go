package actors

import "fmt"

// core is the pure part of an actor: it answers a message with effects, in the order
// in which they are to happen, and changes nothing but its own state.
type core interface {
	step(msg any) []effect
}

// effect is what a core asks its process to do: a send or a work.
type effect interface{ effect() }

// send puts msg into the mailbox of to.
type send struct {
	to  address
	msg any
}

func (send) effect() {}

func (s send) String() string { return fmt.Sprintf("→ %s %T%+v", s.to, s.msg, s.msg) }

// work is something for the process to do. When it is complete, the messages in done
// are sent; when it fails, Failed is sent to the Conductor instead.
type work struct {
	do   task
	done []send
}

// task is what a work does. The interface is closed: each task stands in the file of the actor that asks for it.
type task interface {
	// start begins the task of w. What takes time it starts, and returns; only in a diagnosis Compute waits for the device.
	// r is the lane of the actor, the first lane for an actor that exists once.
	start(r *lane, w work) error
}

func (work) effect() {}

// finding is a message that tells what a work has found out. A core makes the message
// without the result; when the work is complete, the method with returns it with the
// result added.
type finding interface {
	with(result any) any
}

// completed returns the sends of w with result in every message that is a finding.
func (w work) completed(result any) []send {
	out := make([]send, len(w.done))
	for i, s := range w.done {
		if f, ok := s.msg.(finding); ok {
			s.msg = f.with(result)
		}
		out[i] = s
	}
	return out
}
